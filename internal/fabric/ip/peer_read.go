package ip

import (
	"fmt"
	"net"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
)

// peerBuffers is how many parts of one connection the handler holds at most; the
// reader waits for it to release one.
const peerBuffers = 16

// peerIn is a connection that a peer dialled.
type peerIn struct {
	p    *peer
	conn *net.TCPConn
	fr   *frameReader

	once sync.Once
	stop chan struct{}
	free chan *peerBuffer
	made int
}

// peerBuffer is a fabric.Buffer with the memory of a part.
type peerBuffer struct {
	fabric.Buffer
	mem *[frameMaxPart]byte
}

func newPeerBuffer(in *peerIn) *peerBuffer {
	b := &peerBuffer{}
	b.Free = func(*fabric.Buffer) { in.release(b) }
	return b
}

func newPeerIn(p *peer, c *net.TCPConn) *peerIn {
	return &peerIn{
		p: p, conn: c, fr: newFrameReader(c),
		stop: make(chan struct{}), free: make(chan *peerBuffer, peerBuffers),
	}
}

// close ends the reader.
func (in *peerIn) close() {
	in.once.Do(func() {
		close(in.stop)
		_ = in.conn.Close()
	})
}

// read hands to the handler what comes, until the peer says goodbye or the
// connection ends.
func (in *peerIn) read() error {
	p, h := in.p, in.p.t.h
	for {
		f, err := in.fr.next()
		if err != nil {
			return err
		}
		p.recvd.Add(uint64(frameHeaderSize[f.kind] + f.n))
		quiet := false
		select {
		case <-p.quiet:
			quiet = true
		default:
		}
		switch {
		case f.kind == frameGoodbye:
			return fabric.ErrGoodbye
		case quiet:
			err = in.fr.skip(f.n)
		case f.kind == frameMessage:
			var msg []byte
			if msg, err = in.fr.message(f.n); err == nil {
				h.Message(p.rank, msg)
			}
		case f.kind == frameRead:
			if r := f.rng(); p.t.copyOut(nil, &r, 0) {
				err = p.answer(r)
			}
		default:
			err = in.part(&f)
		}
		if err != nil {
			return err
		}
	}
}

// part takes a part of a piece or of an answer.
func (in *peerIn) part(f *frameHeader) error {
	b, err := in.buffer()
	if err != nil {
		return err
	}
	if b == nil {
		return in.fr.skip(f.n)
	}
	b.B = b.mem[:f.n]
	if err := in.fr.data(b.B); err != nil {
		b.Release()
		return err
	}
	if f.kind == frameData {
		in.p.t.h.Data(in.p.rank, f.piece(), f.part, &b.Buffer)
	} else {
		in.p.t.h.ReadData(in.p.rank, f.rng(), f.part, &b.Buffer)
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
	b.mem = in.p.t.memory.Get().(*[frameMaxPart]byte)
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
