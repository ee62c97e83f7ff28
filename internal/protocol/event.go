package protocol

// EventKind says what happened.
type EventKind uint8

// Events.
const (
	EvStart  EventKind = iota // Offloaded: the receives are posted: enter the barrier
	EvMsg                     // From, Msg: a reliable message arrived
	EvSent                    // N multicast chunks have left the send buffer, in order
	EvRead                    // Sub, Ranges: a read ended, and these of its chunks are in place by it
	EvTimer                   // the time that Op.Timer asked for has come
	EvDigest                  // Digest: the answer to ActDigest
)

// An Event is what the driver tells an Op. Chunks that datagrams brought have an entry of their
// own, Op.Placed.
type Event struct {
	Kind      EventKind
	From      int
	Msg       *Msg
	Sub       int
	N         uint32
	Ranges    []Range
	Digest    uint64
	Offloaded bool // the kernel receives, not the process
}

// ActionKind says what to do.
type ActionKind uint8

// Actions.
const (
	ActSend      ActionKind = iota // To, Msg: send on the reliable path
	ActMulticast                   // Sub, PSN, N: multicast these chunks of our block, in order
	ActRead                        // To, Sub, Ranges: claim these chunks and read them from To's receive buffer into ours; answered with EvRead. A range is of one owner
	ActComplete                    // the buffers are the user's again
	ActClosed                      // nothing more will come from this Op
	ActMismatch                    // To, Msg: that rank called something else, namely Msg.Call
	ActReduce                      // Off, Len: send this range of our buffer, chunk by chunk, up the reduction tree
	ActDigest                      // sum up what this round received (Geometry.Spans), and answer with EvDigest
	ActCorrupt                     // To: that rank has everything too, and other bytes than we
	ActPut                         // To, PSN, Off, Len, Input: send a range of our buffer on the reliable path, as the PSN-th to To
)

// An Action is what an Op asks of its driver. All of it must be carried out
// before the Op's next step; Msg's slices are the driver's to keep.
type Action struct {
	Kind   ActionKind
	To     int
	Sub    int
	PSN, N uint32
	Off    int64
	Len    int64
	Ranges []Range
	Input  bool // of a reduction's input, to which nothing was added
	Msg    Msg
}
