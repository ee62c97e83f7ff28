package allcast

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// AnySource is the source of a Recv that takes a message from any rank.
const AnySource = engine.AnyRank

// ErrTruncated means that a message was longer than the buffer of the Recv that matched it. The message is
// lost, and its sender does not notice.
var ErrTruncated = errors.New("message is longer than the buffer")

// ErrWithdrawn means that a Send or a Recv was given up before it had a match.
var ErrWithdrawn = errors.New("withdrawn")

// A WithdrawnError is the error of a Send or a Recv that was given up before it had a match. Nothing was transferred,
// and the communicator is intact. The error matches ErrWithdrawn. It also matches ErrDeadline if a timeout passed
// (WithTimeout), or the error of the context if that ended.
type WithdrawnError struct {
	Rank      int    // rank that provided no match in time; -1 for AnySource, or if no timeout passed
	WorldRank int    // world rank of Rank, or -1
	Op        string // operation
	Missing   string // match that this rank was waiting for

	cause error // ErrDeadline, the error of the context, or nil
}

func (e *WithdrawnError) Error() string {
	s := fmt.Sprintf("allcast: %s was withdrawn; missing here: %s", e.Op, e.Missing)
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns ErrWithdrawn, and the reason for the withdrawal if it is known.
func (e *WithdrawnError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrWithdrawn}
	}
	return []error{ErrWithdrawn, e.cause}
}

// A Message describes a message that was received.
type Message struct {
	Source int // rank of the sender
	Tag    int
	Bytes  int
}

// StartSend starts a Send.
func (c *Comm) StartSend(buf []byte, to, tag int, opts ...CallOption) (*Request, error) {
	return c.startMessage(engine.Message{Kind: wire.Send, Peer: to, Buf: buf}, tag, opts)
}

// Send sends buf to another rank. It returns when buf may be changed. A message of up to 64 KiB usually leaves
// at once; other messages wait for a Recv.
//
// Messages between two ranks with the same tag arrive in the order of their Sends. Send and Recv take no
// place in the order of collectives, and several of them may be in flight: up to 32768 Sends to one rank.
// Tags are 0 or more.
//
// If ctx ends before a Recv on the other rank has matched the message, Send withdraws the message, unless it has
// left. The error matches ErrWithdrawn and the error of ctx. After the match, Send aborts the communicator, as a
// collective does.
//
// WithTimeout is the only option that Send and Recv accept. Without a match at the timeout, the error matches
// ErrDeadline and ErrWithdrawn and names the other rank, and the communicator stays intact. After the match, the
// communicator breaks, as it does when a collective passes its deadline.
func (c *Comm) Send(ctx context.Context, buf []byte, to, tag int, opts ...CallOption) error {
	err := c.block(ctx, "send", func() (*Request, error) { return c.StartSend(buf, to, tag, opts...) })
	return withdrawnBy(ctx, err)
}

// StartRecv starts a Recv.
func (c *Comm) StartRecv(buf []byte, from, tag int, opts ...CallOption) (*Request, error) {
	return c.startMessage(engine.Message{Kind: wire.Recv, Peer: from, Buf: buf}, tag, opts)
}

// Recv receives a message with a tag from another rank, or from AnySource. It matches the messages of a rank in the
// order of their Sends. A message may be shorter than buf. If it is longer, Recv fails with ErrTruncated. It fails if
// that rank, or for AnySource every other rank, has closed the communicator.
//
// If ctx ends before a message has matched, the error of Recv matches ErrWithdrawn and the error of ctx, and the
// next Recv gets the message. After the match, Recv aborts the communicator, as a collective does. Send describes
// the effect of WithTimeout.
func (c *Comm) Recv(ctx context.Context, buf []byte, from, tag int, opts ...CallOption) (Message, error) {
	var r *Request
	err := c.block(ctx, "recv", func() (_ *Request, err error) {
		r, err = c.StartRecv(buf, from, tag, opts...)
		return r, err
	})
	if err != nil {
		return Message{}, withdrawnBy(ctx, err)
	}
	return r.Message(), nil
}

// withdrawnBy adds the error of ctx to the error of a blocking call that was withdrawn because ctx ended.
func withdrawnBy(ctx context.Context, err error) error {
	if e := (*WithdrawnError)(nil); errors.As(err, &e) && e.cause == nil {
		e.cause = ctx.Err()
	}
	return err
}

func (c *Comm) startMessage(m engine.Message, tag int, opts []CallOption) (*Request, error) {
	if err := c.checkUsable(); err != nil {
		return nil, err
	}
	if tag < 0 {
		return nil, invalid("tag %d: want 0 or more", tag)
	}
	var k callOptions
	if err := k.apply(opts); err != nil {
		return nil, err
	}
	if k.Algo != "" || k.Chains != 0 || k.Racks || k.Subgroups != 0 || k.Chunk != 0 || k.Segment != 0 || k.Radix != 0 ||
		k.Factor != 1 {
		return nil, invalid("%v accepts no option but WithTimeout", m.Kind)
	}
	m.Tag, m.Timeout = uint64(tag), k.Timeout
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

// exportMailError converts an error that concerns one Send or Recv only.
func exportMailError(e *node.Error, members []int) error {
	switch e.Reason {
	case node.Withdrawn, node.Unmatched:
		w := &WithdrawnError{
			Rank: slices.Index(members, e.Culprit), WorldRank: e.Culprit, Op: e.Op.String(), Missing: e.Missing,
		}
		if e.Reason == node.Unmatched {
			w.cause = ErrDeadline
		}
		return w
	case node.Truncated:
		return fmt.Errorf("allcast: recv from %s: %w: no %s", rankName(e.Culprit, members), ErrTruncated, e.Missing)
	}
	return nil
}
