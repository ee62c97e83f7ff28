package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

func TestDatapathCollectives(t *testing.T) {
	calltest.Datapaths(t, func(t *testing.T, o allcast.Options) {
		t.Helper()
		allcasttest.Run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
			mk, free := calltest.Allocated(c)
			return errors.Join(calltest.Everything(ctx, c, mk), calltest.Everything(ctx, c, calltest.OnHeap), free())
		})
	})
}

func TestAlloc(t *testing.T) {
	calltest.Datapaths(t, func(t *testing.T, o allcast.Options) {
		t.Helper()
		var kept [2][]byte
		comms := make([]*allcast.Comm, 2)
		allcasttest.Run(t, 2, o, func(_ context.Context, c *allcast.Comm) error {
			for _, n := range []int{0, 1, 4096, 1<<20 + 13} {
				b, err := c.Alloc(n)
				if err != nil || len(b) != n || cap(b) != n || !bytes.Equal(b, make([]byte, n)) {
					return fmt.Errorf("%d bytes: %d, %w", n, len(b), err)
				}
				for i := range b {
					b[i] = 1
				}
				if err := c.Free(b); err != nil {
					return err
				}
				if err := c.Free(b); n > 0 && !errors.Is(err, allcast.ErrNotAlloced) {
					return fmt.Errorf("freed twice: %w", err)
				}
			}
			if err := c.Free(make([]byte, 5)); !errors.Is(err, allcast.ErrNotAlloced) {
				return fmt.Errorf("other memory: %w", err)
			}
			for _, n := range []int{-1, math.MinInt, math.MaxInt, 1 << 60} {
				if _, err := c.Alloc(n); err == nil {
					return fmt.Errorf("%d bytes", n)
				}
			}
			b, err := c.Alloc(3 << 20)
			kept[c.Rank()], comms[c.Rank()] = b, c
			return err
		})
		for r, b := range kept { // the memory outlives the job
			for i := range b {
				b[i]++
			}
			if err := comms[r].Free(b); err != nil {
				t.Error(err)
			}
		}
	})
}

// Free refuses memory of which an unfinished operation uses any part.
func TestFreeInUse(t *testing.T) {
	calltest.Datapaths(t, func(t *testing.T, o allcast.Options) {
		t.Helper()
		for _, algo := range []string{"mcast", "ring"} {
			const size, late, n = 3, 2, 50_000
			var tried sync.WaitGroup
			tried.Add(size - 1)
			allcasttest.Run(t, size, o, func(ctx context.Context, c *allcast.Comm) error {
				in, err1 := c.Alloc(2 * n)
				out, err2 := c.Alloc(size * n)
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				copy(in[n:], calltest.Pattern(1, c.Rank(), n))
				if c.Rank() == late {
					tried.Wait() // the operations of the others cannot complete before
				}
				r, err := c.StartAllgather(in[n:], out, allcast.WithAlgorithm(algo))
				if err != nil {
					return err
				}
				if c.Rank() != late {
					err1, err2 := c.Free(in), c.Free(out)
					tried.Done()
					if !errors.Is(err1, allcast.ErrInUse) || !errors.Is(err2, allcast.ErrInUse) {
						return fmt.Errorf("in use: %w, %w", err1, err2)
					}
				}
				err = calltest.Equal(calltest.Wait(ctx, r, nil, algo), out, calltest.Gathered(1, size, n))
				return errors.Join(err, c.Free(in), c.Free(out))
			})
		}
	})
}

// The kernel writes directly to memory of Alloc. The process copies chunks to other memory.
func TestDatapathCopies(t *testing.T) {
	for _, h := range calltest.Hooks {
		t.Run(h, func(t *testing.T) {
			calltest.NeedBPF(t, h)
			o := allcast.Options{Datapath: "bpf", Hook: h}
			allcasttest.Run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
				d := c.Datapath()
				if d.Name != "bpf" || d.Hook != h || d.Reason != "" || !strings.Contains(d.String(), h) {
					return fmt.Errorf("datapath %+v", d)
				}
				gather := func(buf []byte) (received, copied uint64, err error) {
					before := c.Stats()
					n := len(buf) / c.Size()
					r, err := c.StartAllgather(calltest.Pattern(1, c.Rank(), n), buf, allcast.WithAlgorithm("mcast"))
					err = calltest.Equal(calltest.Wait(ctx, r, err, "mcast"), buf, calltest.Gathered(1, c.Size(), n))
					s := c.Stats()
					return s.ReceivedChunks - before.ReceivedChunks, s.CopiedChunks - before.CopiedChunks, err
				}
				const n = 100_001
				buf, err := c.Alloc(c.Size() * n)
				if err != nil {
					return err
				}
				received, copied, err := gather(buf)
				if err != nil || copied != 0 || received == 0 {
					return fmt.Errorf("memory of Alloc: %d received, %d copied, %w", received, copied, err)
				}
				received, copied, err = gather(make([]byte, c.Size()*n))
				if err != nil || copied != received || received == 0 {
					return fmt.Errorf("other memory: %d received, %d copied, %w", received, copied, err)
				}
				return c.Free(buf)
			})
		})
	}
	t.Run("host", func(t *testing.T) {
		calltest.ClearDatapath(t)
		allcasttest.Run(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
			if d := c.Datapath(); d != (allcast.Datapath{Name: "host"}) || d.String() != "host" {
				return fmt.Errorf("%+v", d)
			}
			return nil
		})
	})
}

// samePort returns two groups with the same port. The kernel cannot tell them apart.
func samePort(group netip.AddrPort) []netip.AddrPort {
	return []netip.AddrPort{group, netip.AddrPortFrom(group.Addr().Next(), group.Port())}
}

// Where the kernel cannot receive, or would be slower, "auto" means "host", and Datapath gives the reason.
func TestDatapathFallsBack(t *testing.T) {
	calltest.NeedBPF(t, "sockfilter")
	group := netip.MustParseAddrPort("239.192.7.7:21234")
	for _, c := range []struct {
		name string
		size int
		o    allcast.Options
		want string
	}{
		{"secure", 2, allcast.Options{Secure: true, Key: key}, "sealed"},
		{"integrity", 2, allcast.Options{Integrity: true}, "sums"},
		{"no multicast", 2, allcast.Options{NoMulticast: true}, "no multicast"},
		{"one rank", 1, allcast.Options{}, "only one rank"},
		{"xdp on loopback", 2, allcast.Options{Hook: "xdp"}, "hook xdp"},
		{"ports", 2, allcast.Options{Subgroups: 2, Groups: samePort(group)}, "port 21234"},
		{"several ranks", 2, allcast.Options{}, "several ranks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Datapath = "auto"
			allcasttest.Run(t, c.size, c.o, func(ctx context.Context, comm *allcast.Comm) error {
				d := comm.Datapath()
				if d.Name != "host" || d.Hook != "" || !strings.Contains(d.Reason, c.want) ||
					!strings.Contains(d.String(), d.Reason) {
					return fmt.Errorf("datapath %+v, want a reason with %q", d, c.want)
				}
				algo := "mcast"
				if c.o.NoMulticast {
					algo = "ring"
				}
				return calltest.Collectives["allgather"](ctx, comm, calltest.OnHeap, 1, 50_000, algo)
			})
		})
	}
}

// If one rank requires "bpf" and its kernel cannot receive, Join fails on all ranks and names that rank.
func TestDatapathFails(t *testing.T) {
	calltest.NeedBPF(t, "sockfilter")
	group := netip.MustParseAddrPort("239.192.7.8:21235")
	for _, c := range []struct {
		name string
		o    allcast.Options
		want string
	}{
		{"secure", allcast.Options{Secure: true}, "Options.Secure"},
		{"integrity", allcast.Options{Integrity: true}, "Options.Integrity"},
		{"xdp on loopback", allcast.Options{}, "hook xdp"},
		{"ports", allcast.Options{Subgroups: 2, Groups: samePort(group)}, "port 21235"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Key = key
			opts := []allcast.Options{c.o, c.o, c.o}
			opts[1].Datapath = "bpf"
			if strings.HasPrefix(c.name, "xdp") {
				opts[1].Hook = "xdp"
			}
			nothing := func(context.Context, *allcast.Comm) error { return nil }
			for r, err := range allcasttest.JoinAll(t.Context(), opts, nothing) {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rank 1") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

func TestDatapathOptions(t *testing.T) {
	calltest.ClearDatapath(t)
	calltest.Refused(t, []calltest.BadOptions{
		{Options: allcast.Options{Datapath: "dpu"}, Want: "host, bpf or auto"},
		{Options: allcast.Options{Hook: "tcx"}, Want: "without the bpf datapath"},
		{Options: allcast.Options{Datapath: "host", Hook: "tcx"}, Want: "without the bpf datapath"},
		{Options: allcast.Options{Datapath: "bpf", Hook: "nic"}, Want: "sockfilter, tcx, xdp"},
		{Name: "ALLCAST_DATAPATH", Value: "kernel", Want: "host, bpf or auto"},
		{Options: allcast.Options{Datapath: "auto"}, Name: "ALLCAST_HOOK", Value: "nic", Want: "sockfilter, tcx, xdp"},
	})
}

// Ranks with different datapaths work together.
func TestDatapathsTogether(t *testing.T) {
	calltest.NeedBPF(t, "sockfilter")
	calltest.NeedBPF(t, "tcx")
	opts := []allcast.Options{
		{Datapath: "host"},
		{Datapath: "bpf"},
		{Datapath: "bpf", Hook: "tcx"},
		{Datapath: "auto"},
		{Datapath: "bpf", Hook: "tcx"},
	}
	for i := range opts {
		opts[i].Subgroups = 2
	}
	for r, err := range allcasttest.JoinAll(t.Context(), opts, func(ctx context.Context, c *allcast.Comm) error {
		mk, free := calltest.Allocated(c)
		return errors.Join(calltest.Everything(ctx, c, mk), free())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Jobs on one machine, and communicators of one job, do not interfere.
func TestDatapathTwoJobs(t *testing.T) {
	for _, h := range calltest.Hooks {
		t.Run(h, func(t *testing.T) {
			calltest.NeedBPF(t, h)
			var wg sync.WaitGroup
			for job := range uint64(2) {
				wg.Go(func() {
					o := allcast.Options{Datapath: "bpf", Hook: h}
					allcasttest.Run(t, 3, o, func(ctx context.Context, world *allcast.Comm) error {
						other, err := world.Dup(ctx)
						if err != nil {
							return err
						}
						return errors.Join(inFlight(ctx, job, world, other), other.Close())
					})
				})
			}
			wg.Wait()
		})
	}
}

// inFlight runs operations on several communicators at the same time.
func inFlight(ctx context.Context, job uint64, comms ...*allcast.Comm) error {
	const n = 60_001
	for round := range uint64(5) {
		var bufs [][]byte
		var reqs []*allcast.Request
		seed := func(i int) uint64 { return job<<32 | round<<8 | uint64(i) }
		for i, c := range comms {
			buf := make([]byte, n*c.Size())
			if round%2 == 0 {
				var err error
				if buf, err = c.Alloc(len(buf)); err != nil {
					return err
				}
			}
			r, err := c.StartAllgather(calltest.Pattern(seed(i), c.Rank(), n), buf, allcast.WithAlgorithm("mcast"))
			if err != nil {
				return err
			}
			bufs, reqs = append(bufs, buf), append(reqs, r)
		}
		for i, c := range comms {
			want := calltest.Gathered(seed(i), c.Size(), n)
			if err := calltest.Equal(calltest.Wait(ctx, reqs[i], nil, "mcast"), bufs[i], want); err != nil {
				return fmt.Errorf("job %d, round %d, communicator %d: %w", job, round, i, err)
			}
			if round%2 == 0 {
				if err := c.Free(bufs[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
