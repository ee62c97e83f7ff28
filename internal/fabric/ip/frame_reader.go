package ip

import (
	"bufio"
	"errors"
	"io"

	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/wire"
)

// errAgain is the error of a nonblocking connection without data.
var errAgain = errors.New("nothing there")

// frameReader reads frames from a connection. If the connection returns errAgain, so does every
// method; the caller repeats the call when more data is there.
type frameReader struct {
	br    *bufio.Reader
	order session.Order
}

// A message is handed out from inside the buffer, so it must fit. Larger reads bypass the buffer.
const frameBuffer = 2 * session.MaxMessage

const _ = uint(session.MaxMessage - wire.MaxMsg) // every message of the protocol fits

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{br: bufio.NewReaderSize(r, frameBuffer)}
}

// next returns the next header. The caller then reads the payload with message or data. io.EOF means
// that the connection ended between two frames.
func (f *frameReader) next() (session.Frame, error) {
	b, err := f.br.Peek(session.StreamPrefix)
	if err != nil {
		if len(b) > 0 {
			err = frameCut(err) // errAgain stays as it is
		}
		return session.Frame{}, err
	}
	size, err := session.StreamSize(b)
	if err != nil {
		return session.Frame{}, err
	}
	if b, err = f.br.Peek(size); err != nil {
		return session.Frame{}, frameCut(err)
	}
	h, err := session.ParseStream(b)
	if err != nil {
		return h, err
	}
	_, _ = f.br.Discard(size) // all of it was peeked
	return h, f.order.Next(&h)
}

// message returns the n bytes of a message, valid until the next call.
func (f *frameReader) message(n int) ([]byte, error) {
	b, err := f.br.Peek(n)
	if err != nil {
		return nil, frameCut(err)
	}
	_, _ = f.br.Discard(n) // all of it was peeked
	return b, nil
}

// data fills b with payload, and returns how many bytes it read.
func (f *frameReader) data(b []byte) (int, error) {
	n, err := io.ReadFull(f.br, b)
	return n, frameCut(err)
}

// skip drops n bytes of payload, and returns how many it dropped.
func (f *frameReader) skip(n int) (int, error) {
	n, err := f.br.Discard(n)
	return n, frameCut(err)
}

// frameCut is the error of a connection that ended inside a frame.
func frameCut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
