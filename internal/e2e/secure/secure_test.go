package secure

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/e2e/attack"
	"github.com/allcast/allcast/internal/testenv"
)

var jobKey = bytes.Repeat([]byte{7}, 32)

// known is a text that a wiretap recognises.
var known = bytes.Repeat([]byte("known plaintext "), 2000)

// A wiretap hears all datagrams of a group. It replays each datagram at once. If it forges, it also
// sends datagrams with the token it heard: with other bytes, and with the same bytes at another place.
type wiretap struct {
	in    *attack.Eavesdropper
	out   *attack.Forger
	forge bool

	heard, sent atomic.Int64
	leaked      atomic.Bool // whether known text was heard
}

func newWiretap(t *testing.T, group netip.AddrPort, forge bool) *wiretap {
	t.Helper()
	in := attack.NewEavesdropper(t, group)
	return &wiretap{in: in, out: attack.NewForger(t, group, in), forge: forge}
}

// run listens until close.
func (w *wiretap) run() {
	w.in.Hear(w.out.Addr(), func(d []byte) {
		if len(d) == attack.HeaderSize {
			return
		}
		w.heard.Add(1)
		if bytes.Contains(d, known[:16]) {
			w.leaked.Store(true)
		}
		w.send(d)
		if !w.forge {
			return
		}
		le := binary.LittleEndian
		imm := le.Uint32(d[12:])
		for ahead := range uint32(4) { // PSNs of genuine chunks that have not arrived yet
			le.PutUint32(d[12:], imm+ahead)
			if i := attack.HeaderSize + int(ahead); i < len(d) {
				d[i] ^= 0xff
			}
			w.send(d)
		}
	})
}

func (w *wiretap) send(d []byte) {
	if w.out.Send(d) {
		w.sent.Add(1)
	}
}

func (w *wiretap) close() { _ = errors.Join(w.in.Close(), w.out.Close()) }

// runTapped runs a job whose ranks gather known text until the wiretap has sent enough datagrams. If the
// wiretap forges, rank 0 must also have received a forgery during an operation. runTapped returns the sum
// of the ranks' counters.
func runTapped(t *testing.T, o allcast.Options, w *wiretap, enough int64) (sum allcast.Stats) {
	t.Helper()
	var mu sync.Mutex
	allcasttest.Run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
		if works, why := c.Multicast(); !works {
			return fmt.Errorf("no multicast: %s", why)
		}
		const n = 20_000
		got, want := make([]byte, n*c.Size()), make([]byte, 0, n*c.Size())
		for r := range c.Size() {
			want = append(want, known[r:r+n]...)
		}
		for last := byte(0); last == 0; {
			clear(got)
			if err := c.Allgather(ctx, known[c.Rank():c.Rank()+n], got, allcast.WithAlgorithm("mcast")); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return errors.New("wrong data")
			}
			stop := []byte{0} // rank 0 decides
			if c.Rank() == 0 && w.sent.Load() >= enough && (!w.forge || c.Stats().CorruptChunks > 0) {
				stop[0] = 1
			}
			if err := c.Broadcast(ctx, stop, 0, allcast.WithAlgorithm("binomial")); err != nil {
				return err
			}
			last = stop[0]
		}
		s := c.Stats()
		mu.Lock()
		defer mu.Unlock()
		sum.CorruptChunks += s.CorruptChunks
		sum.DuplicateChunks += s.DuplicateChunks
		sum.ForeignChunks += s.ForeignChunks
		return nil
	})
	return sum
}

// A process without the key that listens to the group can read nothing. It can neither replay datagrams
// nor forge chunks with the tokens that it sees.
func TestSecureGroup(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprintf("secure %v", secure), func(t *testing.T) {
			group := attack.FreeGroup(t)
			w := newWiretap(t, group, secure) // without Secure, ranks accept forgeries: see SECURITY.md
			var wg sync.WaitGroup
			wg.Go(w.run)
			sum := runTapped(t, allcast.Options{
				Key: jobKey, Secure: secure, Groups: []netip.AddrPort{group}, Chunk: 1000,
				Logger: slog.New(slog.DiscardHandler),
			}, w, 2000)
			w.close()
			wg.Wait()
			t.Logf("%d datagrams heard, %d sent; %d corrupt, %d duplicate, %d foreign", w.heard.Load(), w.sent.Load(),
				sum.CorruptChunks, sum.DuplicateChunks, sum.ForeignChunks)
			if w.leaked.Load() == secure {
				t.Errorf("plaintext was heard: %v", w.leaked.Load())
			}
			if sum.DuplicateChunks+sum.ForeignChunks == 0 || secure && sum.CorruptChunks == 0 {
				t.Errorf("%d corrupt, %d duplicate, %d foreign: want some",
					sum.CorruptChunks, sum.DuplicateChunks, sum.ForeignChunks)
			}
		})
	}
}

// Operations, communicators and several groups work with encryption, with checksums, and with both.
func TestProtectedOperations(t *testing.T) {
	for _, o := range []allcast.Options{
		{Secure: true},
		{Integrity: true},
		{Secure: true, Integrity: true},
		{Secure: true, NoMulticast: true},
		{Integrity: true, PlainSockets: true},
	} {
		name := fmt.Sprintf("secure %v, integrity %v, no multicast %v, plain %v",
			o.Secure, o.Integrity, o.NoMulticast, o.PlainSockets)
		t.Run(name, func(t *testing.T) {
			o.Key, o.Subgroups = jobKey, 2
			allcasttest.Run(t, 4, o, func(ctx context.Context, c *allcast.Comm) error {
				if c.Secure() != o.Secure || c.Integrity() != o.Integrity {
					return fmt.Errorf("secure %v, integrity %v", c.Secure(), c.Integrity())
				}
				dup, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				for i, c := range []*allcast.Comm{c, dup} {
					const n = 300_000
					got := make([]byte, n*c.Size())
					err := c.Allgather(ctx, calltest.Pattern(uint64(i), c.Rank(), n), got,
						allcast.WithSubgroups(2), allcast.WithChains(2))
					if err := calltest.Equal(err, got, calltest.Gathered(uint64(i), c.Size(), n)); err != nil {
						return fmt.Errorf("allgather: %w", err)
					}
					sum := []int64{1, int64(c.Rank())}
					err = allcast.AllreduceSlice(ctx, c, nil, sum, allcast.Sum)
					if err != nil || sum[0] != 4 || sum[1] != 6 {
						return fmt.Errorf("allreduce: %v, %w", sum, err)
					}
				}
				return dup.Close()
			})
		})
	}
}

// Ranks find, count and repair corrupt datagrams.
func TestCorruptDatagrams(t *testing.T) {
	for _, o := range []allcast.Options{
		{Integrity: true}, {Secure: true, Key: jobKey}, {Integrity: true, PlainSockets: true},
	} {
		t.Run(fmt.Sprintf("secure %v, plain %v", o.Secure, o.PlainSockets), func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", "corrupt=2%,drop=1%,reorder=2%,seed=5")
			var corrupt, repaired atomic.Uint64
			allcasttest.Run(t, 4, o, func(ctx context.Context, c *allcast.Comm) error {
				n := testenv.Large(1 << 20)
				for i := range uint64(4) {
					if err := calltest.Allgather(ctx, c, i, n, "mcast"); err != nil {
						return fmt.Errorf("operation %d: %w", i, err)
					}
				}
				s := c.Stats()
				corrupt.Add(s.CorruptChunks)
				repaired.Add(s.RepairedChunks)
				return nil
			})
			if corrupt.Load() == 0 || repaired.Load() == 0 {
				t.Errorf("%d corrupt, %d repaired", corrupt.Load(), repaired.Load())
			}
		})
	}
}

// If ranks disagree, Join fails on all of them and says what to do.
func TestProtectionDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		odd  allcast.Options // of rank 1
		rest allcast.Options
		want string
	}{
		{"secure", allcast.Options{Secure: true}, allcast.Options{}, "ALLCAST_SECURE"},
		{"not secure", allcast.Options{}, allcast.Options{Secure: true}, "ALLCAST_SECURE"},
		{"integrity", allcast.Options{Integrity: true}, allcast.Options{}, "ALLCAST_INTEGRITY"},
		{
			"no integrity",
			allcast.Options{Secure: true},
			allcast.Options{Secure: true, Integrity: true},
			"ALLCAST_INTEGRITY",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := []allcast.Options{c.rest, c.odd, c.rest}
			for r := range opts {
				opts[r].Key = jobKey
			}
			joined := func(context.Context, *allcast.Comm) error { return errors.New("joined") }
			for r, err := range allcasttest.JoinAll(t.Context(), opts, joined) {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rank 1") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

func TestProtectionOptions(t *testing.T) {
	calltest.Refused(t, []calltest.BadOptions{
		{Options: allcast.Options{Secure: true}, Want: "ALLCAST_KEY"},
		{Name: "ALLCAST_SECURE", Value: "on", Want: "ALLCAST_KEY"},
		{Name: "ALLCAST_SECURE", Value: "yes", Want: "on or off"},
		{Name: "ALLCAST_INTEGRITY", Value: "1", Want: "on or off"},
	})
	t.Setenv("ALLCAST_INTEGRITY", "on")
	allcasttest.Run(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
		if !c.Integrity() || c.Secure() {
			return errors.New("ALLCAST_INTEGRITY=on has no effect")
		}
		return nil
	})
}
