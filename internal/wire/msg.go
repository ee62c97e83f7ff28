package wire

// MsgKind is the kind of a reliable message.
type MsgKind uint8

// Messages of one operation, with the fields that each kind uses. The numbers are part of the wire
// format.
const (
	MsgBarrier    MsgKind = 1 + iota // Round, Grant, Digest, Call: one round of the barrier
	MsgActivate                      // the receiver may send: the sender is about to finish, its predecessors have
	MsgChainSent                     // the receiver may send: the sender and its predecessors have finished
	MsgSentUp                        // all ranks in the sender's subtree of the control tree have finished
	MsgAllSent                       // all ranks have finished
	MsgFetch                         // Stream, Ranges: chunks that the sender misses
	MsgAvail                         // Stream, Ranges: requested chunks that the receiver can read now
	MsgFinal                         // the sender has everything and reads nothing more from the receiver
	MsgGrantUp                       // Grant: the smallest in the sender's subtree
	MsgGrant                         // Grant: the smallest of all ranks
	MsgMark                          // Rank, Flag, Counts: chunks that a stalled sender has sent, per subgroup
	MsgReady                         // Digest, Call, Grant: the receiver may send (p2p), or the subtree is ready (inc)
	MsgFinalSum                      // Digest: MsgFinal with a digest of what the sender has
	MsgEagerFetch                    // Digest, Call, Ranges: chunks of the receiver's block that the sender misses
	MsgEagerSent                     // Flag, Ranges: the sender has sent these chunks; with Flag, just now
	MsgIncGo                         // Grant: all ranks are ready; the window of the aggregators, or 0 without them
	MsgIncAsk                        // Rank, Round, Ranges: rank Rank misses the sums of these of its chunks, try Round
	MsgIncDown                       // Rank: rank Rank found that the aggregators do not work
)

// Messages between processes (package node).
const (
	MsgHeartbeat MsgKind = 32 + iota
	MsgDead              // Rank: declared lost
	MsgAbort             // Rank, Phase, Reason, Pair: why the communicator broke
	MsgProbeWait         // asks what the receiver waits for in this operation
	MsgWaitState         // State, Rank: answers MsgProbeWait
	MsgAgree             // Agree: survivors agree on the members of a new communicator (package agree)
)

// Messages about the eager calls of a communicator (package mcast). Grant counts these calls.
const (
	MsgFinishedUp  MsgKind = 48 + iota // Grant, Digest: all ranks in the sender's subtree have finished that many
	MsgFinished                        // Grant: all ranks have finished that many
	MsgFinishedAsk                     // Grant, Digest, Call: report when you have; the last one is this call
)

// Messages of Send and Recv (package node). Seq is the message's MailKey.
const (
	MsgOffer     MsgKind = 64 + iota // Tag, Bytes, Flag: the sender has a message; with Flag, its data follows at once
	MsgAccept                        // the sender waits for the data
	MsgDiscard                       // the message is longer than the sender's buffer: its data is not wanted
	MsgWithdraw                      // the sender takes its offer back, unless the receiver has accepted it
	MsgWithdrawn                     // the sender has forgotten the offer
	MsgCredit                        // Bytes: the receiver may send that many more bytes without being asked
)

const (
	mailBit   = 1 << 63
	mailShift = 40
)

// MailKey identifies a message between two ranks: the number that its sender, a rank of the communicator,
// gave it. No collective has such a sequence number.
func MailKey(sender int, number uint64) uint64 {
	return mailBit | uint64(sender)<<mailShift | number&(1<<mailShift-1)
}

// MailSender returns the sender of a message, or false if seq is the sequence number of a collective.
func MailSender(seq uint64) (sender int, isMail bool) {
	return int(seq &^ mailBit >> mailShift), seq&mailBit != 0
}

// A Range is N consecutive chunks of one stream.
type Range struct{ PSN, N uint32 }

// A Span is a range of a rank's memory in bytes.
type Span struct{ Off, Len int64 }

// Chunks returns the number of chunks in ranges.
func Chunks(ranges []Range) (n uint32) {
	for _, q := range ranges {
		n += q.N
	}
	return n
}

// A Msg is one reliable message. Kind decides which fields it uses.
type Msg struct {
	Kind   MsgKind
	Comm   uint32
	Seq    uint64
	Round  uint8
	Grant  uint64
	Digest uint64
	Call   Call
	Stream uint16
	Ranges []Range
	Rank   uint32
	Flag   bool
	Counts []uint32
	Phase  uint8 // step.Phase of the call that failed
	Reason uint8
	State  uint8
	Pair   *CallPair // calls of a mismatch, or nil
	Agree  *Agree
	Tag    uint64
	Bytes  uint64
}
