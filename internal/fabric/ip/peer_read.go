package ip

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// peerBuffers is the largest number of parts of one connection that the handler may hold. The reader
// blocks until the handler releases one.
const peerBuffers = 16

// peerIn is a connection that a peer dialled.
type peerIn struct {
	p    *peer
	conn peerConn
	link authLink
	fr   *frameReader

	// The frame that is being read.
	f    session.Frame // Kind is session.None between frames
	b    *peerBuffer   // buffer of its payload; nil: none yet
	got  int           // bytes of the payload that were read
	skip bool          // the handler ignores the payload

	once  sync.Once
	stop  chan struct{}
	parts chan struct{} // one element per part that the handler or the reader holds
}

// peerConn is the part of a connection that the reader uses.
type peerConn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// peerBuffer is a fabric.Buffer with the memory of a part.
type peerBuffer struct {
	fabric.Buffer
	in  *peerIn // nil: the buffer is free
	mem [session.MaxPart]byte
}

func newPeerBuffer() *peerBuffer {
	b := &peerBuffer{}
	b.Free = b.release
	return b
}

func newPeerIn(p *peer, c peerConn, l authLink) *peerIn {
	in := &peerIn{p: p, link: l, stop: make(chan struct{}), parts: make(chan struct{}, peerBuffers)}
	in.use(c)
	return in
}

// use sets the connection. Nothing was read from it.
func (in *peerIn) use(c peerConn) {
	in.conn, in.fr = c, newFrameReader(in.link.reader(in))
}

// Read reads from the connection, and counts the bytes.
func (in *peerIn) Read(b []byte) (int, error) {
	n, err := in.conn.Read(b)
	raceReceive(in.p.rank, in.p.t.cfg.Rank)
	in.p.recvd.Add(uint64(n))
	return n, err
}

func (in *peerIn) close() {
	in.once.Do(func() {
		close(in.stop)
		_ = in.conn.Close()
	})
}

// errMore says that more may be there to read, but other connections have to be served first.
var errMore = errors.New("more is there")

// read hands frames to the handler until the peer says goodbye or the connection ends. It returns
// errAgain if nothing is there, and errMore after limit bytes.
func (in *peerIn) read(limit int) error {
	for read := 0; ; read += session.StreamMaxHeader + in.f.N {
		if read > limit {
			return errMore
		}
		if in.f.Kind == session.None {
			f, err := in.fr.next()
			if err != nil {
				return err
			}
			if f.Kind == session.Goodbye {
				return fabric.ErrGoodbye
			}
			in.f, in.got, in.skip = f, 0, false
			select {
			case <-in.p.quiet:
				in.skip = true
			default:
			}
		}
		if err := in.payload(); err != nil {
			return err
		}
		in.f.Kind = session.None
	}
}

// payload reads the rest of the current frame.
func (in *peerIn) payload() error {
	switch {
	case in.skip:
		n, err := in.fr.skip(in.f.N - in.got)
		in.got += n
		return err
	case in.f.Kind == session.Message:
		msg, err := in.fr.message(in.f.N)
		if err == nil {
			in.p.t.h.Message(in.p.rank, msg)
		}
		return err
	case in.f.Kind == session.Read:
		b, err := in.fr.message(in.f.N)
		if err != nil {
			return err
		}
		r := fabric.ReadRequest{ReadID: in.f.ReadID()}
		if r.Spans, err = session.ParseSpans(b); err == nil && in.p.t.copyOut(nil, &r, 0) {
			err = in.p.answer(r)
		}
		return err
	default:
		return in.part()
	}
}

func (in *peerIn) part() error {
	if in.b == nil {
		if err := in.buffer(); err != nil {
			return err
		}
		if in.skip {
			return in.payload()
		}
	}
	n, err := in.fr.data(in.b.B[in.got:])
	in.got += n
	if err != nil {
		return err
	}
	b := in.b
	in.b = nil
	if in.f.Kind == session.Data {
		in.p.t.h.Data(in.p.rank, in.f.Piece(), in.f.Off, &b.Buffer)
	} else {
		in.p.t.h.ReadData(in.p.rank, in.f.ReadID(), in.f.Off, &b.Buffer)
	}
	return nil
}

// buffer blocks until the payload has a buffer, or the handler ignores the payload.
func (in *peerIn) buffer() error {
	select {
	case in.parts <- struct{}{}:
	default:
		select {
		case in.parts <- struct{}{}:
		case <-in.p.quiet:
			in.skip = true
			return nil
		case <-in.stop:
			return fmt.Errorf("read: %w", net.ErrClosed)
		}
	}
	in.b = in.p.t.buffers.get()
	in.b.in, in.b.B = in, in.b.mem[:in.f.N]
	return nil
}

// release takes a buffer back, which may serve another connection next.
func (b *peerBuffer) release(*fabric.Buffer) {
	in := b.in
	if in == nil {
		panic("fabric/ip: a buffer was released twice")
	}
	b.B, b.in = nil, nil
	in.p.t.buffers.put(b)
	<-in.parts
}
