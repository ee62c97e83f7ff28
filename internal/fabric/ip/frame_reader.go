package ip

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// errAgain is what a connection that does not wait returns when nothing is there.
var errAgain = errors.New("nothing there")

// frameReader takes frames off a connection. If that returns errAgain, so does every
// method, and the call is made again when there is more.
type frameReader struct {
	br   *bufio.Reader
	want frameHeader // the part that may continue the last one; its kind is frameNone when none may
}

// A message is handed out from inside the buffer, so it must fit; larger reads of
// payload pass it by.
const frameBuffer = 2 * MaxMessage

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{br: bufio.NewReaderSize(r, frameBuffer)}
}

// next returns the next header. The caller then takes the payload with message or
// data. io.EOF means an end between two frames.
func (f *frameReader) next() (frameHeader, error) {
	b, err := f.br.Peek(framePrefix)
	if err != nil {
		if len(b) > 0 {
			err = frameCut(err) // which leaves errAgain
		}
		return frameHeader{}, err
	}
	size, err := frameSize(b)
	if err != nil {
		return frameHeader{}, err
	}
	if b, err = f.br.Peek(size); err != nil {
		return frameHeader{}, frameCut(err)
	}
	h, err := frameParse(b)
	if err != nil {
		return h, err
	}
	if _, err := f.br.Discard(size); err != nil {
		return h, err
	}
	return h, f.follow(&h)
}

// follow checks that the parts of a piece come in order.
func (f *frameReader) follow(h *frameHeader) error {
	want := f.want
	f.want = frameHeader{}
	if h.kind != frameData && h.kind != frameAnswer {
		return nil
	}
	if h.part > 0 {
		want.n = h.n
		if want != *h {
			return fmt.Errorf("%w: a part at %d of %d continues nothing", errFrame, h.part, h.len)
		}
	}
	if end := h.part + int64(h.n); end < h.len {
		f.want = *h
		f.want.part = end
	}
	return nil
}

// message returns the n bytes of a message, valid until the next call.
func (f *frameReader) message(n int) ([]byte, error) {
	b, err := f.br.Peek(n)
	if err != nil {
		return nil, frameCut(err)
	}
	_, err = f.br.Discard(n)
	return b, err
}

// data fills b with payload and says how far it got.
func (f *frameReader) data(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = f.br.Read(b[n:])
		n += k
	}
	if n == len(b) {
		err = nil
	}
	return n, frameCut(err)
}

// skip drops n bytes of payload and says how far it got.
func (f *frameReader) skip(n int) (int, error) {
	n, err := f.br.Discard(n)
	return n, frameCut(err)
}

// frameCut is for an end inside a frame.
func frameCut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
