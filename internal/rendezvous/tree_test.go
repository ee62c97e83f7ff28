package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// In the tree of these tests, rank 1 has the children 3 and 4, rank 2 has 5 and 6, and rank 3 has 7 and 8.
const (
	testTree = tree(2)
	testSize = 9
)

func newTreeWorld(t *testing.T) *world {
	t.Helper()
	return newStoreWorld(t, testSize, testTree, newMemStore())
}

// newSpreadWorld makes a job whose ranks meet at rank 0's address. Results go down the tree of the other tests.
func newSpreadWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, testSize)
	w.shape, w.root.tree = testTree, testTree
	return w
}

// trees are the jobs in which ranks get results from ranks other than 0.
var trees = map[string]func(*testing.T) *world{"store": newTreeWorld, "star": newSpreadWorld}

// counter calls done when it has been called for n ranks.
func counter(n int, done func()) func(int) {
	var mu sync.Mutex
	return func(int) {
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			done()
		}
	}
}

// Every rank that came learns that rank 1 is missing, also the ranks that only rank 1 connects with the rest.
func TestTreeMissing(t *testing.T) {
	w := newTreeWorld(t)
	cfgs := slices.DeleteFunc(w.configs(), func(c Config) bool { return c.Rank == 1 })
	expire := func(i, came int) {
		expired := make(chan time.Time)
		cfgs[i].expired = expired
		if came == 0 {
			close(expired)
			return
		}
		cfgs[i].seen = counter(came, func() { close(expired) })
	}
	expire(0, 3)                                  // ranks 2, 5, 6
	expire(slices.IndexFunc(cfgs, hasRank(3)), 2) // ranks 7, 8
	expire(slices.IndexFunc(cfgs, hasRank(4)), 0) // no children
	for i, j := range w.join(cfgs...) {
		want := "missing: 1; the following cannot come without them: 3, 4, 7, 8"
		if c := cfgs[i].Rank; testTree.within(c, 1) {
			want = "could not reach rank 1"
		}
		if !blames(j.err, ErrTimeout, 1) || !strings.Contains(j.err.Error(), want) {
			t.Errorf("rank %d: %v", cfgs[i].Rank, j.err)
		}
	}
}

func hasRank(rank int) func(Config) bool { return func(c Config) bool { return c.Rank == rank } }

// The timeout of a rank far from rank 0 ends Join everywhere, with rank 0's knowledge.
func TestTreeTimeoutBelow(t *testing.T) {
	w := newTreeWorld(t)
	cfgs := slices.DeleteFunc(w.configs(), hasRank(5))
	expired := make(chan time.Time)
	cfgs[slices.IndexFunc(cfgs, hasRank(8))].expired = expired
	cfgs[0].seen = counter(7, func() { close(expired) })
	for i, j := range w.join(cfgs...) {
		if !blames(j.err, ErrTimeout, 5) || !strings.Contains(j.err.Error(), "rank 8 gave up waiting: 8 of 9 ranks came") {
			t.Errorf("rank %d: %v", cfgs[i].Rank, j.err)
		}
	}
}

// A rank that looks for its parent ends that when a rank below gives up.
func TestTreeTimeoutBelowSeeker(t *testing.T) {
	w := newTreeWorld(t)
	expired := make(chan time.Time)
	cfgs := []Config{w.config(3, testSize), w.config(7, testSize), w.config(8, testSize)}
	cfgs[0].seen = counter(2, func() { close(expired) })
	cfgs[1].expired = expired
	for i, j := range w.join(cfgs...) {
		if !blames(j.err, ErrTimeout, 1) ||
			!strings.Contains(j.err.Error(), "rank 7 gave up waiting: rank 3 could not reach rank 1") {
			t.Errorf("rank %d: %v", cfgs[i].Rank, j.err)
		}
	}
}

func TestTreeConflicts(t *testing.T) {
	for _, odd := range []int{1, 3, 8} {
		for _, c := range []struct {
			name string
			is   error
			want string
			set  func(*Config)
		}{
			{"protocol", ErrVersion, "protocol 8 (version v1), rank 0 speaks protocol 7", func(c *Config) { c.Protocol = 8 }},
			{"program", ErrProgram, `runs "b", rank 0 runs "a"`, func(c *Config) { c.Program = "b" }},
			{"size", ErrSize, "says 10 ranks, rank 0 says 9", func(c *Config) { c.Size = 10 }},
			{"secure", ErrSecure, "ALLCAST_SECURE", func(c *Config) { c.Secure = true }},
		} {
			t.Run(fmt.Sprint(c.name, " of rank ", odd), func(t *testing.T) {
				w := newTreeWorld(t)
				cfgs := w.configs()
				cfgs[0].Program = "a"
				for i := range cfgs {
					cfgs[i].Key = testKey(1)
				}
				c.set(&cfgs[odd])
				for i, j := range w.join(cfgs...) {
					if !blames(j.err, c.is, 0, odd) || !strings.Contains(j.err.Error(), c.want) {
						t.Errorf("rank %d: %v", i, j.err)
					}
				}
			})
		}
	}
}

// nth calls f when rank 0 sees a rank for the n-th time.
func nth(rank, n int, f func()) func(int) {
	return func(r int) {
		if r == rank {
			if n--; n == 0 {
				f()
			}
		}
	}
}

// joinLast joins rank 8 after rank 0 has seen another rank n times, so that the job is not complete before.
func joinLast(w *world, rank, n int, cfgs []Config) []joined {
	seen := make(chan struct{})
	cfgs[0].seen = nth(rank, n, func() { close(seen) })
	last := make(chan []joined, 1)
	go func() {
		<-seen
		last <- w.join(w.config(8, testSize))
	}()
	return append(w.join(slices.DeleteFunc(cfgs, hasRank(8))...), <-last...)
}

// A rank beyond the others' number of ranks still meets one of them.
func TestTreeRankBeyond(t *testing.T) {
	w := newTreeWorld(t)
	for i, j := range joinLast(w, 12, 1, append(w.configs(), w.config(12, 20))) {
		if !blames(j.err, ErrSize, 0, 12) || !strings.Contains(j.err.Error(), "says 20 ranks, rank 0 says 9") {
			t.Errorf("process %d: %v", i, j.err)
		}
	}
}

func TestTreeDuplicate(t *testing.T) {
	w := newTreeWorld(t)
	for i, j := range joinLast(w, 7, 2, append(w.configs(), w.config(7, testSize))) {
		if !blames(j.err, ErrDuplicate, 7) || !strings.Contains(j.err.Error(), "both say they are rank 7") {
			t.Errorf("process %d: %v", i, j.err)
		}
	}
}

// Rank 0's error says why rank 8 is missing, although another rank refused it.
func TestTreeKeys(t *testing.T) {
	w := newTreeWorld(t)
	cfgs := w.configs()
	for i := range cfgs {
		cfgs[i].Key = testKey(1)
	}
	cfgs[8].Key = testKey(2)
	expired := make(chan time.Time)
	cfgs[0].expired = expired
	cfgs[0].seen = counter(testSize-1, func() { close(expired) }) // all others, and that rank 8 was refused
	for i, j := range w.join(cfgs...) {
		if !errors.Is(j.err, ErrKey) {
			t.Errorf("rank %d: %v", i, j.err)
		}
		if i < 8 && (!blames(j.err, ErrTimeout, 8) || !strings.Contains(j.err.Error(), "wrong or missing key: 1")) {
			t.Errorf("rank %d: %v", i, j.err)
		}
	}
}

// end is a way for a rank to leave a session.
type end struct {
	name string
	do   func(ctx context.Context, j joined)
	want string
}

var ends = []end{
	{"crash", func(_ context.Context, j joined) { crash(j) }, "rank %d at 127.0.0.1:"},
	{"close", func(_ context.Context, j joined) { _ = j.Close() }, "closed its session"},
	{"cancel", func(ctx context.Context, j joined) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = j.Exchange(ctx, nil)
	}, "rank %d"},
}

// Whichever rank leaves a session, and however, all others get an error that names it.
func TestTreeLoss(t *testing.T) {
	for kind, newJob := range trees {
		for _, e := range ends {
			for victim := range testSize {
				t.Run(fmt.Sprintf("%s, %s of rank %d", kind, e.name, victim), func(t *testing.T) {
					w := newJob(t)
					js := w.all()
					for i, err := range exchange(t.Context(), js) {
						if err != nil {
							t.Fatalf("rank %d: %v", i, err)
						}
					}
					e.do(t.Context(), js[victim])
					errs := exchange(t.Context(), slices.Delete(slices.Clone(js), victim, victim+1))
					want := e.want
					if strings.Contains(want, "%d") {
						want = fmt.Sprintf(want, victim)
					}
					for i, err := range errs {
						if !blames(err, ErrLost, victim) || !strings.Contains(err.Error(), want) {
							t.Errorf("survivor %d: %v", i, err)
						}
					}
				})
			}
		}
	}
}

// A rank that gave its blob, and has relayed others, can die too.
func TestTreeDiesAfterItsBlob(t *testing.T) {
	for kind, newJob := range trees {
		for _, victim := range []int{1, 3, 8} {
			t.Run(fmt.Sprint(kind, ", rank ", victim), func(t *testing.T) {
				js := newJob(t).all()
				if err := js[victim].node.(*branch).up.send(t.Context(), blobFrame(1, nil)); err != nil {
					t.Fatal(err)
				}
				others := slices.Clone(js)
				for _, rank := range []int{victim, 4} { // rank 4 does not call, so that there is an exchange to die in
					others = slices.DeleteFunc(others, func(j joined) bool { return j.Session == js[rank].Session })
				}
				waitEvents(js[0].node.(*hub), 1) // its blob
				crash(js[victim])
				for i, err := range exchange(t.Context(), others) {
					if !blames(err, ErrLost, victim) {
						t.Errorf("survivor %d: %v", i, err)
					}
				}
			})
		}
	}
}

// If the deadline of a rank passes while rank 4 is late, all ranks blame rank 4, also those below the impatient one.
func TestTreeLate(t *testing.T) {
	for kind, newJob := range trees {
		for _, impatient := range []int{0, 1, 3, 8} {
			t.Run(fmt.Sprint(kind, ", rank ", impatient), func(t *testing.T) {
				w := newJob(t)
				js := w.all()
				ctx := ending{t.Context(), make(chan struct{})}
				h := js[0].node.(*hub)
				var wg sync.WaitGroup
				start := func(rank int) {
					c := t.Context()
					if rank == impatient {
						c = ctx
					}
					wg.Go(func() {
						_, err := js[rank].Exchange(c, nil)
						switch {
						case rank == impatient && !errors.Is(err, context.DeadlineExceeded):
							t.Errorf("impatient rank %d: %v", rank, err)
						case rank != impatient && !blames(err, ErrTimeout, 4), rank == 0 && !blames(err, ErrTimeout, 4):
							t.Errorf("rank %d: %v", rank, err)
						}
					})
				}
				for rank := 1; rank < testSize; rank++ {
					if rank != 4 {
						start(rank)
					}
				}
				waitEvents(h, testSize-2)
				close(ctx.done)
				if impatient != 0 {
					waitEvents(h, testSize-1) // its leave
				}
				start(0)
				wg.Wait()
			})
		}
	}
}

func waitEvents(h *hub, n int) {
	for len(h.events) < n {
		runtime.Gosched()
	}
}

// crashListener can end all connections of its rank with its children, as the end of a process would.
type crashListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *crashListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
	}
	return conn, err
}

func (l *crashListener) crash() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// A rank that crashes while others join can be started again in the same attempt.
func TestTreeRestart(t *testing.T) {
	for _, victim := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("rank ", victim), func(t *testing.T) {
			w := newTreeWorld(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cl := &crashListener{Listener: l}
			cfgs := w.configs()
			// Rank 4 comes when rank 0 has seen both processes, so that the job is not complete before.
			back := make(chan struct{})
			known := make(chan struct{})
			once, twice := nth(victim, 1, func() { close(known) }), nth(victim, 2, func() { close(back) })
			if victim == 0 {
				close(known)
				close(back)
			}
			cfgs[0].seen = func(rank int) {
				once(rank)
				twice(rank)
			}
			cfgs = slices.DeleteFunc(cfgs, hasRank(4))
			i := slices.IndexFunc(cfgs, hasRank(victim))
			first := cfgs[i]
			first.Listener = cl
			ctx, kill := context.WithCancel(t.Context())
			came := 2 // children of the victim
			switch victim {
			case 0:
				came = 7
			case 1:
				came = 1
			}
			crashed := make(chan struct{})
			first.seen = counter(came, func() {
				go func() {
					<-known
					cl.crash()
					kill()
					close(crashed)
				}()
			})
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = Join(ctx, first) })
			late := cfgs[i]
			cfgs = slices.Delete(cfgs, i, i+1)
			results := make(chan []joined, 1)
			go func() { results <- w.join(cfgs...) }()
			<-crashed
			wg.Wait()
			last := make(chan []joined, 1)
			go func() {
				<-back
				last <- w.join(w.config(4, testSize))
			}()
			js := slices.Concat(w.join(late), <-last, <-results)
			for _, j := range js {
				if j.err != nil {
					t.Error(j.err)
				}
			}
			if t.Failed() {
				return
			}
			for _, err := range exchange(t.Context(), js) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A rank that is cancelled in any phase of Join leaves nothing behind, and the job can go on without a new attempt.
func TestTreeCancel(t *testing.T) {
	for _, phase := range []string{"set", "get", "connected"} {
		for _, victim := range []int{1, 3, 8} {
			t.Run(fmt.Sprintf("rank %d, %s", victim, phase), func(t *testing.T) {
				s := newMemStore()
				w := newStoreWorld(t, testSize, testTree, s)
				ctx, cancel := context.WithCancel(t.Context())
				var once sync.Once
				at := func(now, key string) func(context.Context, string) error {
					return func(_ context.Context, k string) error {
						if now == phase && k == key {
							once.Do(cancel)
						}
						return nil
					}
				}
				s.onSet = at("set", storeKey(0, victim))
				s.onGet = at("get", storeKey(0, testTree.parent(victim)))
				cfgs := w.configs()
				back := make(chan struct{})
				if phase == "connected" {
					once, twice := nth(victim, 1, cancel), nth(victim, 2, func() { close(back) })
					cfgs[0].seen = func(rank int) {
						once(rank)
						twice(rank)
					}
				} else {
					cfgs[0].seen = nth(victim, 1, func() { close(back) })
				}
				again, missing := cfgs[victim], cfgs[6]
				others := slices.DeleteFunc(cfgs, func(c Config) bool { return c.Rank == victim || c.Rank == 6 })
				results := make(chan []joined, 1)
				go func() { results <- w.join(others...) }()
				if _, err := Join(ctx, again); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				last := make(chan []joined, 1)
				go func() { // rank 0 does not believe that the job is complete before it has seen the second process
					<-back
					last <- w.join(missing)
				}()
				for i, j := range slices.Concat(w.join(again), <-last, <-results) {
					if j.err != nil {
						t.Errorf("process %d: %v", i, j.err)
					}
				}
			})
		}
	}
}
