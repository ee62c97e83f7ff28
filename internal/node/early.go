package node

import "github.com/allcast/allcast/internal/wire"

// maxEarly limits the messages of one peer that are kept for calls that this rank has not made yet.
// A peer has at most Config.InFlight calls in flight, and sends a handful of barrier messages for
// each before it needs this rank.
const maxEarly = 1 << 15

// earlyMsgs holds the messages of a communicator for calls that this rank has not made yet.
type earlyMsgs struct {
	bySeq  map[uint64][]earlyMsg
	count  int
	byPeer map[int]int // number of messages by peer
}

type earlyMsg struct {
	from int
	msg  wire.Msg
}

// keep stores a message, or returns false if the peer has sent too many.
func (e *earlyMsgs) keep(from int, m *wire.Msg) bool {
	if e.byPeer[from] == maxEarly {
		return false
	}
	e.bySeq[m.Seq] = append(e.bySeq[m.Seq], earlyMsg{from, *m})
	e.count++
	e.byPeer[from]++
	return true
}

// take removes and returns the messages for a call.
func (e *earlyMsgs) take(seq uint64) []earlyMsg {
	msgs := e.bySeq[seq]
	delete(e.bySeq, seq)
	e.count -= len(msgs)
	for i := range msgs {
		e.byPeer[msgs[i].from]--
	}
	return msgs
}
