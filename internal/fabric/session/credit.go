package session

// A CreditAccount keeps a rank from sending frames that the peer has no receive slot for. Every
// frame carries the number of slots that its sender has posted so far (Frame.Grant); the receiver
// sends no more frames than that. All counters wrap around.
type CreditAccount struct {
	posted  uint32 // slots that this rank has posted for the peer
	told    uint32 // of these, slots that the peer knows of
	granted uint32 // slots that the peer has posted
	sent    uint32 // frames that this rank has sent
}

// Open sets the slots that both sides have posted before the first frame.
func (c *CreditAccount) Open(ours, theirs int) {
	*c = CreditAccount{posted: uint32(ours), told: uint32(ours), granted: uint32(theirs)}
}

// Room reports whether the peer has more than keep slots for frames.
func (c *CreditAccount) Room(keep int) bool { return int32(c.granted-c.sent) > int32(keep) }

// Send counts a frame, and returns its Grant.
func (c *CreditAccount) Send() (grant uint32) {
	c.sent++
	c.told = c.posted
	return c.posted
}

// Received takes the Grant of a frame of the peer.
func (c *CreditAccount) Received(grant uint32) {
	if int32(grant-c.granted) > 0 {
		c.granted = grant
	}
}

// Posted counts slots that this rank has posted again.
func (c *CreditAccount) Posted(n int) { c.posted += uint32(n) }

// Untold is the number of posted slots that the peer does not know of.
func (c *CreditAccount) Untold() int { return int(c.posted - c.told) }
