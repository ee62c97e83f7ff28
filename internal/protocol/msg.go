package protocol

// MsgKind tells reliable messages apart.
type MsgKind uint8

// Messages of one operation.
const (
	MsgBarrier   MsgKind = 1 + iota // Round, Grant, Digest, Call
	MsgActivate                     // your turn: the sender is about to finish, all before it have
	MsgChainSent                    // your turn: the sender and all before it in the chain have sent all
	MsgSentUp                       // my subtree of the control tree has sent all
	MsgAllSent                      // everybody has
	MsgFetch                        // Sub, Ranges: chunks I miss
	MsgAvail                        // Sub, Ranges: chunks you asked for that can be read from me now
	MsgFinal                        // I have everything and will read nothing more from you
	MsgGrantUp                      // Grant: the least in my subtree
	MsgGrant                        // Grant: the least of all
	MsgMark                         // Rank, Flag, Counts: what a stalled sender has sent so far, by subgroup
	MsgReady                        // Digest, Call: you may send to me (package p2p)
	MsgFinalSum                     // MsgFinal, and the Digest of what I have
)

// Messages between processes (package node).
const (
	MsgHeartbeat MsgKind = 32 + iota
	MsgDead              // Rank: declared lost
	MsgAbort             // Rank, Phase, Reason, Pair: the communicator is broken, and why
	MsgWhy               // what are you waiting for in this operation?
	MsgBecause           // State, Rank: the answer
	MsgAgree             // Agree: the survivors agree on who they are (package agree)
)

// A Range is n consecutive chunks of one subgroup.
type Range struct{ PSN, N uint32 }

// Chunks is how many chunks ranges are.
func Chunks(ranges []Range) (n uint32) {
	for _, q := range ranges {
		n += q.N
	}
	return n
}

// A Msg is one reliable message. Which fields count depends on Kind.
type Msg struct {
	Kind   MsgKind
	Comm   uint32
	Seq    uint64
	Round  uint8
	Grant  uint64
	Digest uint64
	Call   CallInfo
	Sub    uint16
	Ranges []Range
	Rank   uint32
	Flag   bool
	Counts []uint32
	Phase  uint8 // of the call that failed, as a step.Phase
	Reason uint8
	State  uint8
	Pair   *CallPair // of a mismatch; nil: not known
	Agree  *Agree
}
