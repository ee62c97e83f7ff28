package allcast_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

var jobKey = bytes.Repeat([]byte{7}, 32)

// known is text that a listener would recognise.
var known = bytes.Repeat([]byte("known plaintext "), 2000)

// listener hears all that is sent to the group. Of every datagram it plays back a copy at
// once, and, if it forges, others with the token it heard: with other bytes, and with the
// same at another place.
type listener struct {
	t     *testing.T
	in    *eavesdropper
	out   *forger
	forge bool

	heard, sent atomic.Int64
	leaked      atomic.Bool
}

func newListener(t *testing.T, group netip.AddrPort, forge bool) *listener {
	t.Helper()
	in := newEavesdropper(t, group)
	return &listener{t: t, in: in, out: newForger(t, group, in), forge: forge}
}

func (l *listener) run() {
	const header = 16
	own := l.out.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	b := make([]byte, 1<<16)
	for {
		n, from, err := l.in.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) == own || n <= header {
			continue
		}
		l.heard.Add(1)
		if bytes.Contains(b[:n], known[:16]) {
			l.leaked.Store(true)
		}
		l.send(b[:n]) // replayed
		if !l.forge {
			continue
		}
		le := binary.LittleEndian
		imm := le.Uint32(b[12:])
		for ahead := range uint32(4) { // of the real ones, so that their places are free
			le.PutUint32(b[12:], imm+ahead)
			b[header+int(ahead)] ^= 0xff
			l.send(b[:n])
		}
	}
}

func (l *listener) send(d []byte) {
	if _, err := l.out.conn.WriteToUDPAddrPort(d, l.out.group); err == nil {
		l.sent.Add(1)
	}
}

func (l *listener) close() {
	l.in.close()
	l.out.close()
}

// listenedTo is a job whose ranks gather known text until the listener has sent so many
// datagrams, and forged one if it does. It returns the sum of their counters.
func listenedTo(t *testing.T, o allcast.Options, l *listener, enough int64) (sum allcast.Stats) {
	t.Helper()
	var mu sync.Mutex
	ranks(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
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
			stop := []byte{0} // rank 0 says when it is enough: some forgeries must have been in time
			if c.Rank() == 0 && l.sent.Load() >= enough && (!l.forge || c.Stats().CorruptChunks > 0) {
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

// Who listens to the group and has no key reads nothing, and can neither play back what it
// heard nor make up chunks with the tokens it sees.
func TestSecureGroup(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprintf("secure %v", secure), func(t *testing.T) {
			group := freeGroup(t)
			l := newListener(t, group, secure) // without, forgeries would be taken: see SECURITY.md
			var wg sync.WaitGroup
			wg.Go(l.run)
			sum := listenedTo(t, allcast.Options{
				Key: jobKey, Secure: secure, Groups: []netip.AddrPort{group}, Chunk: 1000,
				Logger: slog.New(slog.DiscardHandler),
			}, l, 2000)
			l.close()
			wg.Wait()
			t.Logf("%d datagrams heard, %d sent; %d corrupt, %d duplicate, %d foreign", l.heard.Load(), l.sent.Load(),
				sum.CorruptChunks, sum.DuplicateChunks, sum.ForeignChunks)
			if l.leaked.Load() == secure {
				t.Errorf("plaintext was heard: %v", l.leaked.Load())
			}
			if sum.DuplicateChunks+sum.ForeignChunks == 0 || secure && sum.CorruptChunks == 0 {
				t.Errorf("%d corrupt, %d duplicate, %d foreign", sum.CorruptChunks, sum.DuplicateChunks, sum.ForeignChunks)
			}
		})
	}
}

// Everything works sealed, checked, and both: operations, communicators, several groups.
func TestProtectedOperations(t *testing.T) {
	for _, o := range []allcast.Options{{Secure: true}, {Integrity: true}, {Secure: true, Integrity: true}, {Secure: true, NoMulticast: true}, {Integrity: true, PlainSockets: true}} {
		t.Run(fmt.Sprintf("secure %v, integrity %v, no multicast %v, plain %v", o.Secure, o.Integrity, o.NoMulticast, o.PlainSockets), func(t *testing.T) {
			o.Key, o.Subgroups = jobKey, 2
			ranks(t, 4, o, func(ctx context.Context, c *allcast.Comm) error {
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
					if err := c.Allgather(ctx, pattern(uint64(i), c.Rank(), n), got, allcast.WithSubgroups(2), allcast.WithChains(2)); err != nil {
						return err
					}
					if !bytes.Equal(got, gathered(uint64(i), c.Size(), n)) {
						return errors.New("allgather: wrong data")
					}
					sum := []int64{1, int64(c.Rank())}
					if err := allcast.AllreduceSlice(ctx, c, nil, sum, allcast.Sum); err != nil || sum[0] != 4 || sum[1] != 6 {
						return fmt.Errorf("allreduce: %v, %w", sum, err)
					}
				}
				return dup.Close()
			})
		})
	}
}

// Datagrams that were damaged on the way are found, counted, and repaired.
func TestCorruptDatagrams(t *testing.T) {
	for _, o := range []allcast.Options{{Integrity: true}, {Secure: true, Key: jobKey}, {Integrity: true, PlainSockets: true}} {
		t.Run(fmt.Sprintf("secure %v, plain %v", o.Secure, o.PlainSockets), func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", "corrupt=2%,drop=1%,reorder=2%,seed=5")
			var corrupt, repaired atomic.Uint64
			ranks(t, 4, o, func(ctx context.Context, c *allcast.Comm) error {
				n := large(1 << 20)
				for i := range uint64(4) {
					got := make([]byte, n*c.Size())
					if err := c.Allgather(ctx, pattern(i, c.Rank(), n), got, allcast.WithAlgorithm("mcast")); err != nil {
						return err
					}
					if !bytes.Equal(got, gathered(i, c.Size(), n)) {
						return fmt.Errorf("operation %d: wrong data", i)
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

// Ranks that disagree fail at Join, all of them, and say what to do.
func TestProtectionDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		odd  allcast.Options // rank 1's
		rest allcast.Options
		want string
	}{
		{"secure", allcast.Options{Secure: true}, allcast.Options{}, "ALLCAST_SECURE"},
		{"not secure", allcast.Options{}, allcast.Options{Secure: true}, "ALLCAST_SECURE"},
		{"integrity", allcast.Options{Integrity: true}, allcast.Options{}, "ALLCAST_INTEGRITY"},
		{"no integrity", allcast.Options{Secure: true}, allcast.Options{Secure: true, Integrity: true}, "ALLCAST_INTEGRITY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for r := range 3 {
				wg.Go(func() {
					o := c.rest
					if r == 1 {
						o = c.odd
					}
					o.Rank, o.Size, o.Addr, o.Key = r, 3, l.Addr().String(), jobKey
					comm, err := allcast.JoinHooked(t.Context(), o, onSocket(l, r))
					if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rank 1") {
						t.Errorf("rank %d: %v", r, err)
						if comm != nil {
							_ = comm.Close()
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestProtectionOptions(t *testing.T) {
	for _, c := range []struct {
		o    allcast.Options
		env  [2]string
		want string
	}{
		{allcast.Options{Secure: true}, [2]string{}, "ALLCAST_KEY"},
		{allcast.Options{}, [2]string{"ALLCAST_SECURE", "on"}, "ALLCAST_KEY"},
		{allcast.Options{}, [2]string{"ALLCAST_SECURE", "yes"}, "on or off"},
		{allcast.Options{}, [2]string{"ALLCAST_INTEGRITY", "1"}, "on or off"},
	} {
		t.Run(c.env[0]+c.env[1], func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			c.o.Size = 1
			if comm, err := allcast.Join(t.Context(), c.o); !errors.Is(err, allcast.ErrOptions) || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
				if comm != nil {
					_ = comm.Close()
				}
			}
		})
	}
	t.Setenv("ALLCAST_INTEGRITY", "on")
	ranks(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
		if !c.Integrity() || c.Secure() {
			return errors.New("the variable does nothing")
		}
		return nil
	})
}

// The error of memory that changed says whose, and can be told from others.
func TestCorruptError(t *testing.T) {
	err := allcast.Public(&node.Error{
		Op: wire.Broadcast, Phase: step.Handshake, Culprit: node.NoRank, Reason: node.Corrupt, Missing: "nothing",
		Pair: &wire.CallPair{Ranks: [2]uint32{2, 3}},
	}, []int{0, 1, 2, 3})
	var re *allcast.RankError
	if !errors.Is(err, allcast.ErrCorrupt) || !errors.As(err, &re) || re.Rank != -1 || !slices.Equal(re.Differ, []int{2, 3}) || !strings.Contains(err.Error(), "rank 2 and rank 3") {
		t.Error(err)
	}
}
