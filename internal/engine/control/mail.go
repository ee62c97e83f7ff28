package control

import (
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// AnyRank is the peer of a Recv that takes a message from any rank.
const AnyRank = node.AnyRank

// mailAlgo is the name under which observers show a Send or a Recv.
const mailAlgo = "direct"

// A Message is a Send or a Recv of this rank.
type Message struct {
	Kind wire.CallKind // wire.Send or wire.Recv
	Peer int           // rank of the communicator, or AnyRank
	Tag  uint64
	Buf  []byte

	Timeout time.Duration // limit of its time, from StartMessage on; 0: none
}

// StartMessage begins a Send or a Recv. It takes no place in the order of calls. After an error nothing
// has begun.
func (c *Control) StartMessage(comm uint32, m Message) (*Request, error) {
	g := c.comms.group(comm)
	if g == nil {
		return nil, fmt.Errorf("%w: %d", node.ErrComm, comm)
	}
	if size := len(g.Members); m.Peer >= size || m.Peer < 0 && (m.Peer != AnyRank || m.Kind != wire.Recv) {
		return nil, fmt.Errorf("%w: rank %d: must be 0 to %d", ErrCall, m.Peer, size-1)
	}
	if m.Peer == g.Rank {
		return nil, fmt.Errorf("%w: rank %d is this rank: copy the data instead", ErrCall, m.Peer)
	}
	k := &call{
		info: observer.Call{Comm: comm, Kind: m.Kind, Algo: mailAlgo, Bytes: int64(len(m.Buf))},
		bufs: datapath.Buffers{Group: &g.Group, Recv: m.Buf},
		mail: &m, deadline: c.deadlineIn(m.Timeout),
	}
	m.Buf = nil // the caller may keep the request
	k.req.info.Algo = mailAlgo
	c.data.Memory.Use(&k.bufs)
	c.data.Prepare(&k.bufs, false)
	return c.enqueue(k)
}

// beginMail hands a Send or a Recv to the node.
func (c *Control) beginMail(now step.Time, req uint64, k *call) error {
	m, comm, size := k.mail, k.info.Comm, k.info.Bytes
	if m.Kind == wire.Send {
		return c.node.StartSend(now, comm, req, m.Peer, m.Tag, size)
	}
	return c.node.StartRecv(now, comm, req, m.Peer, m.Tag, size)
}

// fitMail makes the buffer of a message as long as the message. A message that is too long for its buffer
// is received and dropped.
func (k *call) fitMail(n int64) {
	if n > int64(len(k.bufs.Recv)) {
		k.bufs.Recv = make([]byte, n)
	}
	k.bufs.Recv = k.bufs.Recv[:n]
}

// Received returns the sender and the size of the message of a Recv that has succeeded.
func (r *Request) Received() (from int, bytes int64, ok bool) {
	if r.call.info.Kind != wire.Recv || !r.Over() || r.Err() != nil {
		return 0, 0, false
	}
	return r.from, r.bytes, true
}
