//go:build unix

package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// copyLines passes on everything that r has, as a rank's output.
func copyLines(mu *sync.Mutex, w io.Writer, r io.Reader, prefix string) {
	l := newLines(mu, w, prefix)
	_, _ = io.Copy(&l, r) // l never fails
	l.end()
}

// Lines of concurrent ranks are not interleaved, and the lines of each rank keep their order.
func TestLinesAreWhole(t *testing.T) {
	const ranks, lines = 8, 200
	var (
		mu  sync.Mutex
		out bytes.Buffer
		wg  sync.WaitGroup
	)
	for n := range ranks {
		var in strings.Builder
		for i := range lines {
			fmt.Fprintf(&in, "%d %s\n", i, strings.Repeat("x", i*n))
		}
		wg.Go(func() {
			copyLines(&mu, &out, iotest.OneByteReader(strings.NewReader(in.String())), fmt.Sprintf("[%d] ", n))
		})
	}
	wg.Wait()
	next := make([]int, ranks)
	for l := range strings.Lines(out.String()) {
		var n, i int
		var text string
		_, _ = fmt.Sscanf(l, "[%d] %d %s", &n, &i, &text)
		if i != next[n] || len(text) != i*n {
			t.Fatalf("got line %d of rank %d, want line %d: %q", i, n, next[n], l)
		}
		next[n]++
	}
	for n, got := range next {
		if got != lines {
			t.Errorf("%d lines of rank %d, want %d", got, n, lines)
		}
	}
}

func TestEndlessLine(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	copyLines(&mu, &out, io.LimitReader(zeros{}, 5<<20/2), "> ")
	for l := range strings.Lines(out.String()) {
		if !strings.HasPrefix(l, "> ") || !strings.HasSuffix(l, "\n") || len(l) > maxLine+1<<17 {
			t.Errorf("a line of %d bytes, or without prefix or line feed", len(l))
		}
	}
	if n := strings.Count(out.String(), "\x00"); n != 5<<20/2 {
		t.Errorf("%d bytes of output, want %d", n, 5<<20/2)
	}
}

// A write error does not block the program.
func TestBrokenOutput(t *testing.T) {
	var mu sync.Mutex
	in := strings.NewReader("a\nb\nc")
	w := &brokenWriter{}
	copyLines(&mu, w, in, "")
	if in.Len() != 0 || w.calls != 1 {
		t.Errorf("%d bytes unread, %d writes", in.Len(), w.calls)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type brokenWriter struct{ calls int }

func (w *brokenWriter) Write([]byte) (int, error) { w.calls++; return 0, errors.New("gone") }
