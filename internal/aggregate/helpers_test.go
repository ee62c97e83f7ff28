package aggregate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
)

var (
	siteKey = []byte("the site key of all the tests")
	secret  = []byte("the secret of one session")
	home    = netip.MustParseAddr("127.0.0.1")
)

// quick makes failures show soon.
var quick = Timing{Heartbeat: 20 * time.Millisecond, Expiry: time.Minute, Retry: 20 * time.Millisecond}

func listen(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.SiteKey == nil {
		cfg.SiteKey = siteKey
	}
	if cfg.Timing == (Timing{}) {
		cfg.Timing = quick
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = 4 << 20
	}
	s, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func parseTree(t *testing.T, text string, size int) *inc.Tree {
	t.Helper()
	tree, err := inc.ParseTree(text, size)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// states collects the states of a Port.
type states struct {
	mu  sync.Mutex
	all []inc.Aggregation
	now chan inc.Aggregation // every state
}

func newStates() *states { return &states{now: make(chan inc.Aggregation, 1000)} }

func (s *states) changed(a inc.Aggregation) {
	s.mu.Lock()
	s.all = append(s.all, a)
	s.mu.Unlock()
	s.now <- a
}

// until waits for a state.
func (s *states) until(t *testing.T, what string, is func(inc.Aggregation) bool) inc.Aggregation {
	t.Helper()
	timeout := time.After(testenv.Patience)
	for {
		select {
		case a := <-s.now:
			if is(a) {
				return a
			}
		case <-timeout:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("no state %s: %+v", what, s.all)
		}
	}
}

func usableState(a inc.Aggregation) bool { return a.Window > 0 }

func says(texts ...string) func(inc.Aggregation) bool {
	return func(a inc.Aggregation) bool {
		return a.Window == 0 && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(a.Why, s) })
	}
}

// portConfig is a valid configuration of a rank.
func portConfig(tree *inc.Tree, rank int) PortConfig {
	return PortConfig{
		Tree: tree, Rank: rank, SiteKey: siteKey, Job: "test", Session: 7, Secret: secret, Local: home, Chunk: 1024,
		Window: 64, Timing: quick,
	}
}

func openPort(t *testing.T, cfg PortConfig) (*Port, *states) {
	t.Helper()
	s := newStates()
	cfg.Changed = s.changed
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, s
}

// A world is a job: all its ranks, with a driver that does by hand what package node does in a real one.
type world struct {
	tree   *inc.Tree
	cfg    PortConfig
	ports  []*Port
	states []*states
	sums   chan arrival
	wg     sync.WaitGroup
}

// An arrival is a sum that a rank has received.
type arrival struct {
	rank    int
	h       inc.Header
	payload []byte
}

// join opens the Ports of all ranks. Each may change its configuration.
func join(t *testing.T, tree *inc.Tree, change func(rank int, cfg *PortConfig)) *world {
	t.Helper()
	w := &world{tree: tree, sums: make(chan arrival, 1<<14)}
	for r := range tree.Size() {
		cfg := portConfig(tree, r)
		if change != nil {
			change(r, &cfg)
		}
		p, s := openPort(t, cfg)
		w.cfg = cfg
		w.ports, w.states = append(w.ports, p), append(w.states, s)
		w.wg.Go(func() {
			_ = p.Receive(func(h *inc.Header, payload []byte) {
				select {
				case w.sums <- arrival{r, *h, bytes.Clone(payload)}:
				default: // lost, like by a network
				}
			}, func() {})
		})
	}
	t.Cleanup(func() { w.close(); w.wg.Wait() })
	return w
}

func (w *world) close() {
	for _, p := range w.ports {
		_ = p.Close()
	}
}

// ready waits until all ranks can use the aggregators, and returns the smallest window.
func (w *world) ready(t *testing.T) uint32 {
	t.Helper()
	window := uint32(math.MaxUint32)
	for _, s := range w.states {
		window = min(window, s.until(t, "usable", usableState).Window)
	}
	return window
}

// input returns the send buffer of a rank.
func input(rank int, size int64, seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, uint64(rank)))
	b := make([]byte, 0, size)
	for int64(len(b)) < size {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(rnd.Float32()*float32(int(1)<<rnd.IntN(20))))
	}
	return b
}

// reduceScatter runs one operation and compares every byte with the sums of Tree.Combine. The
// owners' own contributions are not added.
func (w *world) reduceScatter(t *testing.T, comm, number, window uint32, block int64) {
	t.Helper()
	size := w.tree.Size()
	counts := make([]int64, size)
	total := int64(0)
	for i := range counts {
		counts[i] = block + int64(4*i) // blocks differ
		total += counts[i]
	}
	layout := inc.NewLayout(counts, w.cfg.Chunk)
	inputs := make([][]byte, size)
	for r := range inputs {
		inputs[r] = input(r, total, uint64(number))
	}
	places := layout.Places()
	got := make([][]byte, places)
	missing := uint32(0) // first one
	timeout := time.After(testenv.Patience)
	for try := 0; missing < places; try++ {
		w.contribute(comm, number, uint8(try), missing, min(places, missing+window), layout, inputs, got)
		again := time.After(200 * time.Millisecond)
	collect:
		for missing < places {
			select {
			case a := <-w.sums:
				want := w.ports[a.rank].Token(comm, number)
				if a.h.Token != want || a.h.Comm != comm || a.h.Number != number || a.h.Place >= places {
					continue // of an earlier operation
				}
				if owner, _, _, _ := layout.At(a.h.Place); owner != a.rank {
					t.Fatalf("the sum of place %d reached rank %d", a.h.Place, a.rank)
				}
				if old := got[a.h.Place]; old != nil && !bytes.Equal(old, a.payload) {
					t.Fatalf("two different sums of place %d", a.h.Place)
				}
				got[a.h.Place] = a.payload
				before := missing
				for missing < places && got[missing] != nil {
					missing++
				}
				// The window moves on: credit for the new places.
				from, to := min(places, before+window), min(places, missing+window)
				w.contribute(comm, number, 0, from, to, layout, inputs, got)
			case <-again:
				break collect
			case <-timeout:
				t.Fatalf("place %d of %d is missing after %d tries", missing, places, try+1)
			}
		}
		if missing == places {
			w.verify(t, layout, inputs, got)
		}
	}
}

// contribute sends the contributions of all ranks to some places, except those that have arrived.
func (w *world) contribute(
	comm, number uint32, try uint8, from, to uint32, layout *inc.Layout, inputs, got [][]byte,
) {
	for r, p := range w.ports {
		var hs []inc.Header
		var payloads [][]byte
		for place := from; place < to; place++ {
			owner, _, off, length := layout.At(place)
			if owner == r || got[place] != nil {
				continue
			}
			hs = append(hs, inc.Header{
				Kind: inc.Contribution, Try: try, Type: uint8(reduce.F32), Reduce: uint8(reduce.Sum),
				Token: p.Token(comm, number), Comm: comm, Number: number, Place: place, Owner: uint16(owner),
			})
			payloads = append(payloads, inputs[r][off:off+length])
		}
		_ = p.Send(hs, payloads) // a closed Port loses everything
	}
}

func (w *world) verify(t *testing.T, layout *inc.Layout, inputs, got [][]byte) {
	t.Helper()
	for place := range layout.Places() {
		owner, _, off, length := layout.At(place)
		want := make([]byte, length)
		scratch := make([]byte, int64(w.tree.Depth())*length)
		w.tree.Combine(want, owner, scratch, func(r int) []byte { return inputs[r][off : off+length] },
			func(dst, src []byte) {
				if err := reduce.Into(dst, src, reduce.F32, reduce.Sum); err != nil {
					t.Fatal(err)
				}
			})
		if !bytes.Equal(want, got[place]) {
			t.Fatalf("inc: the sum of place %d for rank %d is wrong", place, owner)
		}
	}
}

// twoLevels starts a top and two leaves, and returns the tree of a job of size ranks.
func twoLevels(t *testing.T, size int, change func(*Config)) (tree *inc.Tree, top, left, right *Server) {
	t.Helper()
	start := func(parent string) *Server {
		cfg := Config{Parent: parent}
		if change != nil {
			change(&cfg)
		}
		return listen(t, cfg)
	}
	top = start("")
	up := top.Addr().String()
	left, right = start(up), start(up)
	half := size / 2
	text := fmt.Sprintf("%v=0-%d>%s; %v=%d-%d>%s; %s", left.Addr(), half-1, up, right.Addr(), half, size-1, up, up)
	return parseTree(t, text, size), top, left, right
}
