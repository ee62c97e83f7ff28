package strangers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/e2e/attack"
	"github.com/allcast/allcast/internal/joinhook"
)

const (
	size      = 4      // number of ranks
	blockSize = 30_000 // bytes per rank
)

// A target is a job whose ranks gather until over is set.
type target struct {
	addr  string         // address of rank 0
	group netip.AddrPort // multicast group

	joined, ranks sync.WaitGroup
	turn          chan struct{} // one item per call that rank 0 starts; closed after its last call
	over          atomic.Bool
	calls         int
	errs          [size]error
	stats         [size]allcast.Stats
}

// newTarget opens the rendezvous of a job. start then starts its ranks.
func newTarget(t *testing.T) (*target, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &target{addr: l.Addr().String(), group: attack.FreeGroup(t), turn: make(chan struct{}, 1)}, l
}

// start starts the ranks and waits until each has joined or failed to join.
func (j *target) start(ctx context.Context, l net.Listener) {
	o := allcast.Options{
		Size: size, Addr: j.addr, Groups: []netip.AddrPort{j.group}, Chunk: 1000,
		Key: bytes.Repeat([]byte{7}, 32), JoinTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler), // no reports of strangers
	}
	join := joinhook.With(ctx, joinhook.Hooks{Listener: l})
	j.joined.Add(size)
	for rank := range size {
		j.ranks.Go(func() {
			if rank == 0 {
				defer close(j.turn)
			}
			o := o
			o.Rank = rank
			c, err := allcast.Join(join, o)
			j.joined.Done()
			if err != nil {
				j.errs[rank] = err
				j.over.Store(true)
				return
			}
			calls, err := gatherUntil(ctx, c, blockSize, &j.over, j.turn)
			j.stats[rank] = c.Stats()
			if rank == 0 {
				j.calls = calls
			}
			j.errs[rank] = errors.Join(err, c.Close())
		})
	}
	j.joined.Wait()
}

// wait waits for the ranks and reports their errors and counters.
func (j *target) wait(t *testing.T) {
	t.Helper()
	j.ranks.Wait()
	for rank, err := range j.errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		s := j.stats[rank]
		t.Logf("rank %d: %d foreign, %d duplicate, %d dropped, %d repaired, %d connections rejected",
			rank, s.ForeignChunks, s.DuplicateChunks, s.DroppedChunks, s.RepairedChunks, s.RejectedConns)
	}
}

// TestStrangers gathers while strangers without the key send all kinds of data to the job's multicast
// group and to its listeners. One of them also listens to the group and replays datagrams. All data
// must be correct, every call must succeed, and the ranks must have counted the foreign datagrams.
func TestStrangers(t *testing.T) {
	const datagrams, connections = 20_000, 200
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	j, l := newTarget(t)

	// The first strangers are in the backlog of the rendezvous before rank 0 accepts connections.
	knock := attack.NewKnocker()
	defer func() { _ = knock.Close() }()
	for range connections / 2 {
		knock.At(j.addr)
	}
	j.start(ctx, l)

	hear := attack.NewEavesdropper(t, j.group)
	forge := attack.NewForger(t, j.group, hear)
	var strangers sync.WaitGroup
	strangers.Go(func() { hear.Run(forge) })
	var sent int
	strangers.Go(func() {
		defer j.over.Store(true)
		defer func() { _ = errors.Join(hear.Close(), forge.Close()) }()
		addrs := attack.Listening(t)
		// A few datagrams per operation, so that they arrive in all of its phases.
		const batch = 100
		for done := 0; done < datagrams; done += batch {
			if _, ok := <-j.turn; !ok {
				return
			}
			for range batch {
				if forge.SendNext() {
					sent++
				}
			}
			last := connections / 2 * (done + batch) / datagrams
			for have := connections / 2 * done / datagrams; len(addrs) > 0 && have < last; have++ {
				knock.At(addrs[have%len(addrs)])
			}
		}
	})
	j.wait(t)
	strangers.Wait()
	var rejected uint64
	for rank, s := range j.stats {
		rejected += s.RejectedConns
		if s.ForeignChunks == 0 {
			t.Errorf("rank %d has counted no foreign datagrams", rank)
		}
	}
	if rejected == 0 && runtime.GOOS == "linux" { // other systems do not list listening sockets
		t.Error("no rank has counted a stranger's connection")
	}
	t.Logf("%d datagrams and %d connections of strangers, %d Allgathers", sent, knock.Made(), j.calls)
}

// gatherUntil gathers until rank 0 sees that over is set. Rank 0 announces its last call in its
// contribution, so that all ranks stop after the same call.
func gatherUntil(
	ctx context.Context, c *allcast.Comm, n int, over *atomic.Bool, turn chan<- struct{},
) (calls int, err error) {
	if works, why := c.Multicast(); !works {
		return 0, fmt.Errorf("no multicast: %s", why)
	}
	got := make([]byte, n*c.Size())
	for last := false; !last; calls++ {
		block := calltest.Pattern(uint64(calls), c.Rank(), n)
		if c.Rank() == 0 {
			block[0] = 0
			if over.Load() {
				block[0] = 1
			}
			select {
			case turn <- struct{}{}:
			default: // the strangers are still at the last turn
			}
		}
		clear(got)
		if err := c.Allgather(ctx, block, got, allcast.WithAlgorithm("mcast")); err != nil {
			return calls, err
		}
		last = got[0] == 1
		want := calltest.Gathered(uint64(calls), c.Size(), n)
		want[0] = got[0]
		if !bytes.Equal(got, want) || got[0] > 1 {
			return calls, fmt.Errorf("wrong data after call %d", calls)
		}
	}
	return calls, nil
}
