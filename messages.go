package allcast

import (
	"context"
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// AnySource is the source of a Recv that takes a message from any rank.
const AnySource = engine.AnyRank

// ErrTruncated means that a message was longer than the buffer of the Recv that matched it. The message is
// lost, and its sender does not notice.
var ErrTruncated = errors.New("message is longer than the buffer")

// A Message describes a message that was received.
type Message struct {
	Source int // rank of the sender
	Tag    int
	Bytes  int
}

// StartSend starts a Send.
func (c *Comm) StartSend(buf []byte, to, tag int) (*Request, error) {
	return c.startMessage(engine.Message{Kind: wire.Send, Peer: to, Buf: buf}, tag)
}

// Send sends buf to another rank. It returns when buf may be changed. A message of up to 64 KiB usually leaves
// at once; other messages wait for a Recv.
//
// Messages between two ranks with the same tag arrive in the order of their Sends. Send and Recv take no
// place in the order of collectives, and several of them may be in flight: up to 32768 Sends to one rank.
// Tags are 0 or more.
//
// If ctx ends before a Recv on the other rank has matched the message, Send withdraws the message and returns
// the error of ctx, unless the message has left. After the match, it aborts the communicator, as a collective
// does.
func (c *Comm) Send(ctx context.Context, buf []byte, to, tag int) error {
	err := c.block(ctx, "send", func() (*Request, error) { return c.StartSend(buf, to, tag) })
	if errors.Is(err, errWithdrawn) {
		return fmt.Errorf("allcast: send to rank %d with tag %d was withdrawn: %w", to, tag, ctx.Err())
	}
	return err
}

// StartRecv starts a Recv.
func (c *Comm) StartRecv(buf []byte, from, tag int) (*Request, error) {
	return c.startMessage(engine.Message{Kind: wire.Recv, Peer: from, Buf: buf}, tag)
}

// Recv receives a message with a tag from another rank, or from AnySource. It matches the messages of a rank in the
// order of their Sends. A message may be shorter than buf. If it is longer, Recv fails with ErrTruncated.
//
// If ctx ends before a message has matched, Recv returns the error of ctx, and the next Recv gets the
// message. After the match, it aborts the communicator, as a collective does.
func (c *Comm) Recv(ctx context.Context, buf []byte, from, tag int) (Message, error) {
	var r *Request
	err := c.block(ctx, "recv", func() (_ *Request, err error) {
		r, err = c.StartRecv(buf, from, tag)
		return r, err
	})
	switch {
	case errors.Is(err, errWithdrawn):
		return Message{}, fmt.Errorf("allcast: recv of a message with tag %d was withdrawn: %w", tag, ctx.Err())
	case err != nil:
		return Message{}, err
	}
	return r.Message(), nil
}

func (c *Comm) startMessage(m engine.Message, tag int) (*Request, error) {
	if err := c.checkUsable(); err != nil {
		return nil, err
	}
	if tag < 0 {
		return nil, invalid("tag %d: want 0 or more", tag)
	}
	m.Tag = uint64(tag)
	r, err := c.job.StartMessage(c.id, m)
	if err != nil {
		return nil, exportError(err, c.members)
	}
	return &Request{r, c, tag}, nil
}

// Message describes the message of a Recv that has succeeded. For any other request it is the zero Message.
func (r *Request) Message() Message {
	from, bytes, ok := r.req.Received()
	if !ok {
		return Message{}
	}
	return Message{Source: from, Tag: r.tag, Bytes: int(bytes)}
}

// errWithdrawn is the error of a Send or a Recv that was withdrawn.
var errWithdrawn = errors.New("withdrawn before it had a match")

// exportMailError converts an error that concerns one Send or Recv only.
func exportMailError(e *node.Error, members []int) error {
	switch e.Reason {
	case node.Withdrawn:
		return errWithdrawn
	case node.Truncated:
		return fmt.Errorf("allcast: recv from %s: %w: no %s", rankName(e.Culprit, members), ErrTruncated, e.Missing)
	}
	return nil
}
