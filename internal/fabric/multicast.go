package fabric

import (
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// Multicast is the unreliable side: one multicast group per subgroup. The network tells apart some
// streams of each subgroup, on IP by their ports. Each stream has a receive queue of its own. Of S
// subgroups, stream q*S+s belongs to subgroup s.
type Multicast interface {
	// Capabilities never change after the network is open.
	Capabilities() Capabilities
	Subgroups() int
	Streams() int                 // of all subgroups: a multiple of Subgroups, the same on all ranks
	Sender(stream int) Sender     // for one goroutine at a time
	Receiver(stream int) Receiver // for one goroutine at a time
	Close() error                 // makes all Receive calls return ErrClosed
}

// Capabilities are what the unreliable side can do on this machine.
type Capabilities struct {
	Chunk    int // largest payload of one datagram, without Header
	Batch    int // largest number of datagrams per Send: a super-packet; at least 1
	Room     int // datagrams of Chunk bytes that each receive queue holds, by what the kernel charges
	Overhead int // bytes that the network adds to a payload on the wire, Header included
	Header   int // bytes of an encoded Header: HeaderSize, and SumSize more if it carries Sum

	Local bool // all datagrams come from this machine
	Eager bool // small operations may be eager: datagrams carry tokens, and any memory can be registered at once

	Groups    CommGroups             // nil: all communicators share the job's groups
	Poller    Poller                 // polls receivers after Receiver.Attach; nil: each needs a goroutine in Receive
	NewPoller func() (Poller, error) // makes another one, for receivers of another worker; nil: it cannot
	Placer    Placer                 // nil: every datagram goes to the Sink
	Allocator Allocator              // of memory that the Placer writes to directly; nil: there is none
}

// CommGroups gives communicators multicast groups of their own, so that a rank does not receive the
// datagrams of communicators that it is not a member of.
type CommGroups interface {
	// AddComm joins the groups of a communicator, which may take long. All its ranks pass the same id
	// and name, and no other communicator of the job has them. After an error, this rank's datagrams for
	// the communicator go to the job's groups.
	AddComm(id uint32, name string) error
	// RemoveComm leaves the groups. From then on, the communicator's datagrams go to the job's
	// groups. It may run at the same time as Close.
	RemoveComm(id uint32)
}

// A Batch is datagrams to send, in order. All payloads but the last have the same length, and the
// last is not longer.
type Batch struct {
	Headers  []wire.Header
	Payloads [][]byte
}

// Check reports why a batch breaks the rules: it has at most limit datagrams, of at most chunk bytes.
// A kernel that cuts a super-packet into equal parts would cut other batches in wrong places.
func (b *Batch) Check(limit, chunk int) error {
	n := len(b.Headers)
	if n != len(b.Payloads) || n > limit {
		return fmt.Errorf("a batch of %d headers and %d payloads: at most %d of both", n, len(b.Payloads), limit)
	}
	for i, p := range b.Payloads {
		switch first := len(b.Payloads[0]); {
		case len(p) > chunk:
			return fmt.Errorf("a payload of %d bytes: at most %d fit a datagram", len(p), chunk)
		case len(p) > first || len(p) < first && i < n-1:
			return fmt.Errorf("payload %d of %d has %d bytes, the first %d: only the last may be shorter", i, n, len(p), first)
		}
	}
	return nil
}

// A Sender multicasts datagrams to one stream. One goroutine at a time uses it.
type Sender interface {
	// Send hands datagrams of a batch (at most Capabilities.Batch) to the network, from the first on,
	// and returns how many the network took. It never blocks: if the network has no room for all of
	// them, the error is ErrBusy. With any other error, the rest of the batch cannot be sent. The
	// datagrams do not reach this process itself. The network may read the payloads' memory until
	// Completed counts them.
	Send(b *Batch) (n int, err error)
	// Completed counts the datagrams whose payloads the network no longer needs, out of all that Send
	// took since the Sender was made. Datagrams complete in order; after Close, all have completed.
	Completed() uint64
	// Await blocks until Send may have room again or Completed may have grown, for at most d.
	Await(d time.Duration)
}

// SendAll sends a whole batch, and blocks until its memory is free again. After about limit it fails
// with ErrBusy: the network had no room, or has not completed the datagrams that it took. After any
// error the network may still read the payloads' memory. The Sender must have nothing else in flight.
func SendAll(s Sender, b *Batch, limit time.Duration) error {
	const slice = 20 * time.Millisecond
	want := s.Completed()
	for waited := time.Duration(0); ; {
		n, err := s.Send(b)
		want += uint64(n)
		if n < len(b.Headers) {
			b = &Batch{Headers: b.Headers[n:], Payloads: b.Payloads[n:]}
		} else {
			b = &emptyBatch
		}
		done := s.Completed()
		switch {
		case err != nil && !errors.Is(err, ErrBusy):
			return err
		case err == nil && done >= want:
			return nil
		case err != nil && waited > limit:
			return err
		case waited > limit:
			return fmt.Errorf("%w: %d datagrams that it took have not completed after %v", ErrBusy, want-done, waited)
		}
		start := time.Now()
		s.Await(slice)
		waited += time.Since(start)
	}
}

var emptyBatch Batch

// A Receiver takes datagrams from the queue of one stream.
type Receiver interface {
	// Receive blocks until datagrams are there, hands all of them to the sink, calls Sink.Idle, and
	// returns. It also returns, after Sink.Idle, if Wake was called since the last Receive returned.
	// It does not allocate.
	Receive(s Sink) error
	// Attach makes a poller of Capabilities hand datagrams to the sink, in place of Receive. It reports
	// whether it did. The poller calls failed for each error of the network, without Idle.
	Attach(p Poller, s Sink, failed func(error)) bool
	// Wake makes a blocked Receive return, or else the next one. Any goroutine may call it.
	Wake()
	// Pending reports whether datagrams wait in the queue. It may be false before the first Receive,
	// and true until the next Receive blocks. Any goroutine may call it.
	Pending() bool
	Stats() ReceiverStats
}

// ReceiverStats are the counters of a Receiver.
type ReceiverStats struct {
	Datagrams uint64 // received
	Dropped   uint64 // by a full queue, as far as the kernel tells, or by an injected fault
	Malformed uint64 // foreign datagrams: too short for a Header
	Calls     uint64 // system calls that returned datagrams
}

// A Sink takes a Receiver's datagrams. The receive worker of a stream is one.
type Sink interface {
	// Expect fills slots with the memory where the payloads of the next datagrams most likely belong,
	// in order, and returns how many. The Receiver may write to the slots until it calls Arrived or
	// Chunk; their old content does not matter.
	Expect(slots [][]byte) int
	// Arrived says that datagrams with these headers have filled the first slots of the last Expect,
	// each exactly. The sink answers how many of them, from the first on, are where they belong. The
	// Receiver then moves the payloads of the others out of the slots and hands them to Chunk.
	Arrived(h []wire.Header) int
	// Chunk takes one datagram whose payload is not in a slot. The payload is valid until it returns.
	Chunk(h wire.Header, payload []byte)
	// Idle says that the queue is empty for now.
	Idle()
}
