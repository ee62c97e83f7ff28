package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// eagerNet is a fabric on which multicasts of up to 32 chunks are eager.
func eagerNet(size int) *memNet {
	n := newMemNet(size)
	n.eager = true
	return n
}

// small is a Broadcast of n bytes with known content, the i-th of a test, on one rank.
func small(i, root, rank, n int) Call {
	b := make([]byte, n)
	if rank == root {
		fillSmall(b, i)
	}
	return Call{Kind: wire.Broadcast, Algo: Multicast, Root: root, Recv: b}
}

func fillSmall(b []byte, i int) {
	for k := range b {
		b[k] = byte(k*7 + i*13 + 1)
	}
}

// start starts a call.
func start(t *testing.T, e *engine, c Call) *Request {
	t.Helper()
	r, err := e.Start(World, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// finish waits for a Broadcast of small, and compares what it received.
func finish(t *testing.T, r *Request, c Call, i int) {
	t.Helper()
	<-r.Done()
	want := make([]byte, len(c.Recv))
	fillSmall(want, i)
	if err := r.Err(); err != nil {
		t.Fatalf("call %d: %v", i, err)
	}
	if !bytes.Equal(c.Recv, want) {
		t.Fatalf("call %d: wrong data", i)
	}
}

func TestEagerBroadcasts(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure %v", secure), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := eagerNet(4)
				n.secure = secure
				all := n.engines(t)
				for i := range 5 * mcast.WindowCalls {
					size := 1 + i*37%2000
					calls, reqs := make([]Call, len(all)), make([]*Request, len(all))
					for r, e := range all {
						calls[r] = small(i, i%len(all), r, size)
						reqs[r] = start(t, e, calls[r])
					}
					for r := range all {
						finish(t, reqs[r], calls[r], i)
					}
				}
				for r, e := range all {
					if s := e.Stats(); s.Repaired > 0 {
						t.Errorf("rank %d repaired %d chunks, and none was lost", r, s.Repaired)
					}
				}
			})
		})
	}
}

func TestEagerAllgathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := eagerNet(4).engines(t)
		for i := range 3 * mcast.WindowCalls {
			counts := []int64{int64(i), 300, 0, 7}
			want := make([]byte, 307+i)
			fillSmall(want, i)
			bufs := make([][]byte, len(all))
			everywhere(t, all, func(r int) Call {
				bufs[r] = make([]byte, len(want))
				at := sum(counts[:r])
				copy(bufs[r][at:at+counts[r]], want[at:])
				return Call{Kind: wire.Allgather, Algo: Multicast, Counts: counts, Recv: bufs[r]}
			})
			for r, b := range bufs {
				if !bytes.Equal(b, want) {
					t.Fatalf("call %d on rank %d: wrong data", i, r)
				}
			}
		}
	})
}

// The root returns before the others make their calls. It may reuse its buffer, and nobody sees that.
func TestEagerRootRunsAhead(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf %v", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := eagerNet(3)
				all := n.engines(t)
				n.ranks[2].deaf.Store(deaf) // it has to fetch
				for i := range mcast.WindowCalls {
					c := small(i, 0, 0, 1500)
					finish(t, start(t, all[0], c), c, i)
					clear(c.Recv)
				}
				// The window is closed now.
				last := small(mcast.WindowCalls, 0, 0, 1500)
				blocked := start(t, all[0], last)
				time.Sleep(time.Second)
				if blocked.Over() {
					t.Fatal("the window did not close")
				}
				for i := range mcast.WindowCalls + 1 {
					for r := 1; r < 3; r++ {
						c := small(i, 0, r, 1500)
						finish(t, start(t, all[r], c), c, i)
					}
				}
				finish(t, blocked, last, mcast.WindowCalls)
			})
		})
	}
}

// A rank that closes a communicator still serves what others lost.
func TestEagerRootCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const comm = FirstComm
		n := eagerNet(3)
		all := n.engines(t)
		for _, e := range all {
			if err := e.AddComm(comm, "own", []int{0, 1, 2}); err != nil {
				t.Fatal(err)
			}
		}
		n.ranks[1].deaf.Store(true)
		c := small(0, 0, 0, 1500)
		r, err := all[0].Start(comm, c)
		if err != nil {
			t.Fatal(err)
		}
		finish(t, r, c, 0)
		if err := all[0].RemoveComm(comm); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for rank := 1; rank < 3; rank++ {
			c := small(0, 0, rank, 1500)
			r, err := all[rank].Start(comm, c)
			if err != nil {
				t.Fatal(err)
			}
			finish(t, r, c, 0)
			if err := all[rank].RemoveComm(comm); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for rank, e := range all {
			if left := e.Comms(); left != FirstComm {
				t.Errorf("rank %d has %d communicators, want %d", rank, left, FirstComm)
			}
		}
	})
}

// Ranks that make different calls find out, although some of them have returned by then.
func TestEagerMismatch(t *testing.T) {
	p2p := func(root int) Call {
		return Call{Kind: wire.Broadcast, Algo: "binomial", Root: root, Recv: make([]byte, 500)}
	}
	for name, calls := range map[string][]Call{
		"sizes":              {small(0, 0, 0, 500), small(0, 0, 1, 600), small(0, 0, 2, 500)},
		"roots":              {small(0, 0, 0, 500), small(0, 1, 1, 500), small(0, 0, 2, 500)},
		"roots of all":       {small(0, 0, 0, 500), small(0, 1, 1, 500), small(0, 2, 2, 500)},
		"small and large":    {small(0, 0, 0, 500), small(0, 0, 1, 500), small(0, 0, 2, 500_000)},
		"large and small":    {small(0, 0, 0, 500_000), small(0, 0, 1, 500), small(0, 0, 2, 500)},
		"algorithms":         {small(0, 0, 0, 500), p2p(0), small(0, 0, 2, 500)},
		"algorithm of root":  {p2p(0), small(0, 0, 1, 500), small(0, 0, 2, 500)},
		"roots, algorithms":  {small(0, 0, 0, 500), p2p(1), small(0, 0, 2, 500)},
		"algorithms of most": {small(0, 0, 0, 500), p2p(1), p2p(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := eagerNet(3).engines(t)
				ended := make(chan error, len(all))
				for r, e := range all {
					go func() {
						var err error
						for err == nil { // a rank whose call completed learns of the mismatch later
							var req *Request
							if req, err = e.Start(World, calls[r]); err == nil {
								<-req.Done()
								err = req.Err()
							}
						}
						ended <- err
					}()
				}
				for range all {
					var e *node.Error
					if err := <-ended; !errors.As(err, &e) || e.Reason != node.Mismatch {
						t.Errorf("got %v, want a mismatch", err)
					}
				}
			})
		})
	}
}

// Calls that wait for a rank end: by a deadline that names it, by cancelling, and by Close.
func TestEagerCallsEnd(t *testing.T) {
	for name, end := range map[string]func(*engine, *Request){
		"deadline": nil,
		"cancel":   func(_ *engine, r *Request) { r.Cancel() },
		"abort":    func(e *engine, _ *Request) { _ = e.Abort(World) },
		"close":    func(e *engine, _ *Request) { _ = e.Close() },
	} {
		for _, sends := range []bool{false, true} { // it waits for the window, or for data
			t.Run(fmt.Sprintf("%s, sends %v", name, sends), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := eagerNet(2)
					if end == nil {
						n.configure = func(_ int, cfg *Config) {
							cfg.Liveness = settings.Liveness{Timeout: time.Second, Deadline: time.Second}
						}
					}
					all := n.engines(t)
					var r *Request
					if sends {
						for i := range mcast.WindowCalls {
							c := small(i, 0, 0, 100)
							finish(t, start(t, all[0], c), c, i)
						}
						r = start(t, all[0], small(0, 0, 0, 100))
					} else {
						r = start(t, all[0], small(0, 1, 0, 100))
					}
					time.Sleep(100 * time.Millisecond)
					if r.Over() {
						t.Fatalf("it ended: %v", r.Err())
					}
					if end != nil {
						end(all[0], r)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					select {
					case <-r.Done():
					case <-ctx.Done():
						t.Fatal("it did not end")
					}
					var e *node.Error
					if errors.As(r.Err(), &e) && end == nil && (e.Reason != node.Deadline || e.Culprit != 1) {
						t.Errorf("got %v, want that rank 1 misses the deadline", e)
					}
					if r.Err() == nil {
						t.Error("no error")
					}
				})
			})
		}
	}
}

// A chunk that was lost behind early datagrams is fetched after a cutoff: no datagram waits in the queue.
func TestEagerRepairIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := eagerNet(2)
		all := n.engines(t)
		for i := range 2 {
			c := small(i, 0, 0, 500)
			finish(t, start(t, all[0], c), c, i)
			synctest.Wait()
			n.ranks[1].deaf.Store(true)
		}
		began := time.Now()
		for i := range 2 {
			c := small(i, 0, 1, 500)
			finish(t, start(t, all[1], c), c, i)
		}
		if took := time.Since(began); took > 20*time.Duration(firstAlpha) {
			t.Errorf("the repair took %v", took)
		}
	})
}
