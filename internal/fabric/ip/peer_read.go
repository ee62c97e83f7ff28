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

// peerBuffers is how many parts of one connection the handler holds at most; the
// reader waits for it to release one.
const peerBuffers = 16

// peerIn is a connection that a peer dialled.
type peerIn struct {
	p    *peer
	conn peerConn
	link authLink
	fr   *frameReader

	// The frame that we are in.
	f    session.Frame // kind session.None: none
	b    *peerBuffer   // where its payload goes; nil: nowhere, or it is not known yet
	got  int           // so much of the payload is here
	skip bool          // nobody wants it

	once sync.Once
	stop chan struct{}
	free chan *peerBuffer
	made int
}

// peerConn is what we need of the connection.
type peerConn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// peerBuffer is a fabric.Buffer with the memory of a part.
type peerBuffer struct {
	fabric.Buffer
	mem *[session.MaxPart]byte
}

func newPeerBuffer(in *peerIn) *peerBuffer {
	b := &peerBuffer{}
	b.Free = func(*fabric.Buffer) { in.release(b) }
	return b
}

func newPeerIn(p *peer, c peerConn, l authLink) *peerIn {
	in := &peerIn{p: p, link: l, stop: make(chan struct{}), free: make(chan *peerBuffer, peerBuffers)}
	in.use(c)
	return in
}

// use takes a connection that nothing was read from.
func (in *peerIn) use(c peerConn) {
	in.conn, in.fr = c, newFrameReader(in.link.reader(peerCounted{c, in.p}))
}

// peerCounted counts what is read.
type peerCounted struct {
	io.Reader
	p *peer
}

func (r peerCounted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	raceReceive(r.p.rank, r.p.t.cfg.Rank)
	r.p.recvd.Add(uint64(n))
	return n, err
}

// close ends the reader.
func (in *peerIn) close() {
	in.once.Do(func() {
		close(in.stop)
		_ = in.conn.Close()
	})
}

// ended gives back what the reader had in hand.
func (in *peerIn) ended() {
	if in.b != nil {
		in.b.Release()
		in.b = nil
	}
}

// errMore is that there is more to read, but others have waited long enough.
var errMore = errors.New("more is there")

// read hands to the handler what comes, until the peer says goodbye, the connection
// ends, with errAgain nothing is there, or with errMore so many bytes were read.
func (in *peerIn) read(most int) error {
	for read := 0; ; read += session.StreamMaxHeader + in.f.N {
		if read > most {
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

// payload takes the rest of the frame that we are in.
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

// part takes a part of a piece or of an answer.
func (in *peerIn) part() error {
	if in.b == nil {
		b, err := in.buffer()
		if err != nil {
			return err
		}
		if b == nil {
			in.skip = true
			return in.payload()
		}
		b.B = b.mem[:in.f.N]
		in.b = b
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

// buffer waits for a buffer; nil: nobody wants the data any more.
func (in *peerIn) buffer() (*peerBuffer, error) {
	var b *peerBuffer
	select {
	case b = <-in.free:
	default:
		if in.made < peerBuffers {
			in.made++
			b = newPeerBuffer(in)
			break
		}
		select {
		case b = <-in.free:
		case <-in.p.quiet:
			return nil, nil //nolint:nilnil // documented: no buffer is needed
		case <-in.stop:
			return nil, fmt.Errorf("read: %w", net.ErrClosed)
		}
	}
	b.mem = in.p.t.memory.Get().(*[session.MaxPart]byte)
	return b, nil
}

// release takes a buffer back; its memory may serve another connection next.
func (in *peerIn) release(b *peerBuffer) {
	mem := b.mem
	if mem == nil {
		panic("fabric/ip: a buffer was released twice")
	}
	b.B, b.mem = nil, nil
	in.p.t.memory.Put(mem)
	in.free <- b
}
