package transfer

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// random returns n bytes that depend on the seed.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// write makes a file and its directories.
func write(t *testing.T, data []byte, elements ...string) string {
	t.Helper()
	name := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// testbed is a sender with receivers in one process.
type testbed struct {
	t    *testing.T
	addr string
	sent chan sendResult
}

type sendResult struct {
	sum *Summary
	err error
}

type recvResult struct {
	res *Result
	err error
}

// serve starts a sender.
func serve(ctx context.Context, t *testing.T, o SendOptions) *testbed {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = ln
	b := &testbed{t: t, addr: ln.Addr().String(), sent: make(chan sendResult, 1)}
	go func() {
		sum, err := Send(ctx, o)
		b.sent <- sendResult{sum, err}
	}()
	return b
}

// receive starts a receiver.
func (b *testbed) receive(ctx context.Context, o ReceiveOptions) <-chan recvResult {
	o.From = b.addr
	ch := make(chan recvResult, 1)
	go func() {
		res, err := Receive(ctx, o)
		ch <- recvResult{res, err}
	}()
	return ch
}

func wantSame(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d with other contents", name, len(got), len(want))
	}
}

// testTimeout is long, because machines under load are slow; nothing waits for it unless something hangs.
const testTimeout = 30 * time.Second

func TestOneFile(t *testing.T) {
	for _, key := range [][]byte{nil, random(32, 9)} {
		src, dst := t.TempDir(), t.TempDir()
		data := random(5<<20+123, 1)
		path := write(t, data, src, "file")
		b := serve(t.Context(), t, SendOptions{
			Paths: []string{path}, To: 3, Segment: 256 << 10, Key: key, Timeout: testTimeout,
		})
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				r := <-b.receive(t.Context(), ReceiveOptions{Dir: filepath.Join(dst, name), Name: name, Key: key, Verify: true})
				if r.err != nil {
					t.Errorf("%s: %v", name, r.err)
				}
				wantSame(t, filepath.Join(dst, name, "file"), data)
			})
		}
		wg.Wait()
		s := <-b.sent
		if s.err != nil {
			t.Error(s.err)
		}
	}
}
