package aggregate

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/testenv"
)

func oneLevel(t *testing.T, s *Server, size int) *inc.Tree {
	t.Helper()
	return parseTree(t, fmt.Sprintf("%v=0-%d", s.Addr(), size-1), size)
}

// A rank learns who else is missing, and Wait goes on waiting for that rank.
func TestWaitForOthers(t *testing.T) {
	s := listen(t, Config{})
	tree := oneLevel(t, s, 2)
	p, states := openPort(t, portConfig(tree, 0))
	states.until(t, "waiting", says(s.Addr().String(), "waits for rank 1"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := p.Wait(ended); a.Window != 0 || !strings.Contains(a.Why, "waits for rank 1") {
		t.Errorf("%+v", a)
	}
	openPort(t, portConfig(tree, 1))
	if a := p.Wait(t.Context()); a.Window != 64 || a.Why != "" {
		t.Errorf("%+v", a)
	}
}

// knows reports whether a server has the address of a rank of the tests' job.
func (s *Server) knows(rank int) bool {
	j := (*s.table.Load())[7]
	j.data.mu.Lock()
	defer j.data.mu.Unlock()
	return j.data.owners[rank].IsValid()
}

// All ranks learn that a rank has left, over both levels, and that it is back.
func TestRankLeaves(t *testing.T) {
	tree, top, left, right := twoLevels(t, 4, nil)
	w := join(t, tree, nil)
	w.ready(t)
	_ = w.ports[3].Close()
	for _, s := range w.states[:3] {
		s.until(t, "gone", says("rank 3 has detached", right.Addr().String()))
	}
	if top.knows(3) || right.knows(3) || !right.knows(2) {
		t.Error("an aggregator would send to a rank that has left")
	}
	p, s := openPort(t, portConfig(tree, 3))
	s.until(t, "usable", usableState)
	for _, s := range w.states[:3] {
		s.until(t, "usable again", usableState)
	}
	if p.State().Window == 0 {
		t.Error(p.State())
	}
	// When all ranks have left, the aggregators forget the job.
	_ = p.Close()
	w.close()
	if !testenv.Soon(func() bool {
		return len(top.State().Jobs)+len(left.State().Jobs)+len(right.State().Jobs) == 0
	}) {
		t.Errorf("%+v", top.State())
	}
	if st := top.State(); st.Reserved != 0 || st.Memory != 0 {
		t.Errorf("an aggregator without jobs has memory: %+v", st)
	}
}

// A killed aggregator is named by all ranks. A new one with the same address serves them again, with right sums.
func TestRestart(t *testing.T) {
	for _, victim := range []string{"leaf", "top"} {
		t.Run(victim, func(t *testing.T) {
			tree, top, left, _ := twoLevels(t, 4, nil)
			w := join(t, tree, nil)
			window := w.ready(t)
			w.reduceScatter(t, 1, 1, window, 10_000)
			dead := top
			if victim == "leaf" {
				dead = left
			}
			cfg := dead.cfg
			cfg.Listen = dead.Addr().String()
			_ = dead.Close()
			for _, s := range w.states {
				s.until(t, "unusable", says(cfg.Listen))
			}
			var again *Server
			if !testenv.Soon(func() (ok bool) { // another process may have taken the port meanwhile
				var err error
				again, err = Listen(cfg)
				return err == nil
			}) {
				t.Fatal("the address stays in use")
			}
			t.Cleanup(func() { _ = again.Close() })
			w.ready(t)
			w.reduceScatter(t, 1, 2, window, 10_000)
		})
	}
}

// Nothing is sent to the address of an aggregator that has gone: another process may have it.
func TestNothingToTheDead(t *testing.T) {
	tree, top, left, _ := twoLevels(t, 4, nil)
	w := join(t, tree, nil)
	w.ready(t)
	_ = top.Close()
	for _, s := range w.states {
		s.until(t, "unusable", says("aggregator "+top.Addr().String()+":"))
	}
	j := (*left.table.Load())[7]
	j.data.mu.Lock()
	if j.data.parent.IsValid() {
		t.Errorf("a leaf sends to %v", j.data.parent)
	}
	j.data.mu.Unlock()
	_ = left.Close()
	w.states[0].until(t, "unusable", says("aggregator "+left.Addr().String()+":"))
	before := w.ports[0].Stats()
	if err := w.ports[0].Send(make([]inc.Header, 3), make([][]byte, 3)); err != nil {
		t.Error(err)
	}
	if after := w.ports[0].Stats(); after.Unsent != before.Unsent+3 || after.Sent != before.Sent {
		t.Errorf("%+v, then %+v", before, after)
	}
}

func TestNoAggregator(t *testing.T) {
	s := listen(t, Config{})
	tree := oneLevel(t, s, 2)
	_ = s.Close()
	p, _ := openPort(t, portConfig(tree, 0))
	a := p.Wait(t.Context())
	if a.Window != 0 || !strings.Contains(a.Why, s.Addr().String()) || !strings.Contains(a.Why, "cannot connect") {
		t.Errorf("%+v", a)
	}
	if err := p.Send(make([]inc.Header, 3), make([][]byte, 3)); err != nil || p.Stats().Unsent != 3 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}

func TestWrongKey(t *testing.T) {
	s := listen(t, Config{})
	cfg := portConfig(oneLevel(t, s, 2), 0)
	cfg.SiteKey = []byte("another site key, long enough")
	p, _ := openPort(t, cfg)
	a := p.Wait(t.Context())
	if a.Window != 0 || !strings.Contains(a.Why, s.Addr().String()) || !strings.Contains(a.Why, "site key") {
		t.Errorf("%+v", a)
	}
	if !testenv.Soon(func() bool { return s.State().Connections.WrongKeys > 0 }) || len(s.State().Jobs) > 0 {
		t.Errorf("%+v", s.State())
	}
}

// Aggregators with different keys do not attach to each other, and the ranks learn it.
func TestWrongKeyOfParent(t *testing.T) {
	top := listen(t, Config{SiteKey: []byte("another site key, long enough")})
	leaf := listen(t, Config{Parent: top.Addr().String()})
	tree := parseTree(t, fmt.Sprintf("%v=0-1>%v;%v", leaf.Addr(), top.Addr(), top.Addr()), 2)
	w := join(t, tree, nil)
	for _, s := range w.states {
		s.until(t, "refused", says("aggregator "+top.Addr().String(), "site key"))
	}
}

func TestTreesDisagree(t *testing.T) {
	other := "127.0.0.1:9"
	top := listen(t, Config{})
	leaf := listen(t, Config{Parent: top.Addr().String()})
	here := leaf.Addr().String()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"another parent": {fmt.Sprintf("%s=0-1>%s;%s", here, other, other), []string{here, top.Addr().String(), other}},
		"no parent":      {here + "=0-1", []string{here, top.Addr().String(), "has none"}},
		"a parent":       {fmt.Sprintf("%v=0-1>%s;%s", top.Addr(), other, other), []string{other, "no parent", "--parent"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := join(t, parseTree(t, c.text, 2), nil)
			for _, s := range w.states {
				s.until(t, "refused", says(c.want...))
			}
		})
	}
}

// A parent may have several names.
func TestParentByName(t *testing.T) {
	top := listen(t, Config{})
	leaf := listen(t, Config{Parent: fmt.Sprintf("localhost:%d", top.Addr().Port())})
	tree := parseTree(t, fmt.Sprintf("%v=0-1>%v;%v", leaf.Addr(), top.Addr(), top.Addr()), 2)
	join(t, tree, nil).ready(t)
}

// The second rank of a job must agree with the first.
func TestRanksDisagree(t *testing.T) {
	s := listen(t, Config{})
	tree := oneLevel(t, s, 3)
	_, first := openPort(t, portConfig(tree, 0))
	first.until(t, "waiting", says("waits for"))
	for name, c := range map[string]struct {
		change func(*PortConfig)
		want   string
	}{
		"secret": {func(p *PortConfig) { p.Secret = []byte("another secret, as long") }, "another job has session 7"},
		"job":    {func(p *PortConfig) { p.Job = "other" }, "another job has session 7"},
		"tree":   {func(p *PortConfig) { p.Tree = oneLevel(t, s, 2) }, "another tree"},
		"chunk":  {func(p *PortConfig) { p.Chunk = 512 }, "other ranks of the job have 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := portConfig(tree, 1)
			c.change(&cfg)
			p, _ := openPort(t, cfg)
			if a := p.Wait(t.Context()); a.Window != 0 || !strings.Contains(a.Why, c.want) ||
				!strings.Contains(a.Why, s.Addr().String()) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// The smallest window of all aggregators counts.
func TestSmallestWindow(t *testing.T) {
	tree, _, _, _ := twoLevels(t, 4, nil)
	w := join(t, tree, func(rank int, cfg *PortConfig) {
		if rank == 2 {
			cfg.Window = 17
		}
	})
	for _, s := range w.states {
		s.until(t, "with the smallest window", func(a inc.Aggregation) bool { return a.Window == 17 })
	}
}

// Two addresses of a tree that lead to the same aggregator are an error that says so.
func TestTwoAddressesOfOneAggregator(t *testing.T) {
	s := listen(t, Config{})
	here := s.Addr().String()
	other := fmt.Sprintf("localhost:%d", s.Addr().Port())
	tree := parseTree(t, fmt.Sprintf("%s=0;%s=1>%s", here, other, here), 2)
	a := &attach{
		Job: "test", Session: 7, Secret: secret, Tree: tree.String(), Size: 2, Chunk: 1024, Window: 64, Node: 0,
	}
	j := &job{id: 7, name: "test", secret: secret, tree: tree, text: a.Tree, size: 2, chunk: 1024}
	if err := j.same(a); err != nil {
		t.Error(err)
	}
	a.Node = 1
	if err := j.same(a); err == nil || !strings.Contains(err.Error(), "lead to the same aggregator") {
		t.Error(err)
	}
}

// An aggregator gives up a child without heartbeats, and a child an aggregator without answers.
func TestExpiry(t *testing.T) {
	short := Timing{Heartbeat: time.Hour, Expiry: 100 * time.Millisecond, Retry: time.Hour}
	s := listen(t, Config{Timing: short})
	tree := oneLevel(t, s, 2)
	silent := portConfig(tree, 0)
	silent.Timing = Timing{Heartbeat: time.Hour, Expiry: time.Hour, Retry: time.Hour}
	_, states := openPort(t, silent) // it may expire before it learns that it is attached
	states.until(t, "expired", says("it closed the connection"))
	if s.State().Connections.Expired != 1 {
		t.Errorf("%+v", s.State())
	}
	if !testenv.Soon(func() bool { return len(s.State().Jobs) == 0 }) {
		t.Error("the job stays without children")
	}

	patient := listen(t, Config{Timing: Timing{Heartbeat: time.Hour, Expiry: time.Hour, Retry: time.Hour}})
	cfg := portConfig(oneLevel(t, patient, 2), 0)
	cfg.Timing = short
	_, states = openPort(t, cfg)
	states.until(t, "no answer", says(patient.Addr().String(), "no answer for 100ms"))
}

func TestBadConfigs(t *testing.T) {
	s := listen(t, Config{})
	tree := oneLevel(t, s, 2)
	for want, change := range map[string]func(*PortConfig){
		"no tree":         func(c *PortConfig) { c.Tree = nil },
		"for a job of 3":  func(c *PortConfig) { c.Size = 3 },
		"rank 2 of 2":     func(c *PortConfig) { c.Rank = 2 },
		"site key":        func(c *PortConfig) { c.SiteKey = nil },
		"local address":   func(c *PortConfig) { c.Local = netip.Addr{} },
		"link-local":      func(c *PortConfig) { c.Local = netip.MustParseAddr("fe80::1") },
		"session 0":       func(c *PortConfig) { c.Session = 0 },
		"secret":          func(c *PortConfig) { c.Secret = c.Secret[:3] },
		"multiple of 8":   func(c *PortConfig) { c.Chunk = 1001 },
		"window of 0":     func(c *PortConfig) { c.Window = 0 },
		"name of the job": func(c *PortConfig) { c.Job = strings.Repeat("x", 100) },
	} {
		cfg := portConfig(tree, 0)
		change(&cfg)
		if p, err := Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			if err == nil {
				_ = p.Close()
			}
		}
	}
	for want, cfg := range map[string]Config{
		"site key":         {},
		"below 1":          {SiteKey: siteKey, Cores: -1},
		`parent "x"`:       {SiteKey: siteKey, Parent: "x"},
		`listen "x"`:       {SiteKey: siteKey, Listen: "x"},
		"address already ": {SiteKey: siteKey, Listen: s.Addr().String()},
	} {
		if s, err := Listen(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			if err == nil {
				_ = s.Close()
			}
		}
	}
}

// Close returns while the aggregator is silent, and closes twice.
func TestCloseWhileSilent(t *testing.T) {
	s := listen(t, Config{})
	p, states := openPort(t, portConfig(oneLevel(t, s, 2), 0))
	states.until(t, "attached", says("waits for"))
	received := make(chan error)
	go func() { received <- p.Receive(func(*inc.Header, []byte) {}, func() {}) }()
	_ = p.Close()
	_ = p.Close()
	if err := <-received; err != ErrClosed {
		t.Error(err)
	}
	if err := p.Send(nil, nil); err != ErrClosed {
		t.Error(err)
	}
}

func TestMaxPayload(t *testing.T) {
	for _, c := range []struct {
		mtu  int
		v6   bool
		want int
	}{{1500, false, 1440}, {1500, true, 1416}, {9000, false, 8936}, {65536, false, 8936}, {60, false, 0}, {0, true, 0}} {
		if got := MaxPayload(c.mtu, c.v6); got != c.want {
			t.Errorf("MaxPayload(%d, %t) is %d, want %d", c.mtu, c.v6, got, c.want)
		}
	}
}

// Many ranks attach at the same time, and leave at the same time.
func TestManyRanks(t *testing.T) {
	size := testenv.Large(512)
	tree, top, _, _ := twoLevels(t, size, func(c *Config) { c.Buffer = 32 << 20 })
	ports := make([]*Port, size)
	for r := range ports {
		cfg := portConfig(tree, r)
		cfg.Window, cfg.Buffer, cfg.Timing = 8, 64<<10, Timing{}
		ports[r], _ = openPort(t, cfg)
	}
	for r, p := range ports {
		if a := p.Wait(t.Context()); a.Window == 0 {
			t.Fatalf("rank %d: %+v", r, a)
		}
	}
	var wg sync.WaitGroup
	for _, p := range ports {
		wg.Go(func() { _ = p.Close() })
	}
	wg.Wait()
	if !testenv.Soon(func() bool { return len(top.State().Jobs) == 0 }) {
		t.Errorf("%+v", top.State().Jobs)
	}
}

// Another program at the address of an aggregator is an error. A silent one does not hold up Close.
func TestNotAnAggregator(t *testing.T) {
	for name, answer := range map[string]string{
		"silent": "", "another program": strings.Repeat("HTTP/1.1 400 no\r\n", 9),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			accepted := make(chan net.Conn, 1)
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = c.Write([]byte(answer))
					accepted <- c
				}
				close(accepted)
			}()
			cfg := portConfig(parseTree(t, l.Addr().String()+"=0-1", 2), 0)
			cfg.Timing.Retry = time.Hour
			p, _ := openPort(t, cfg)
			c := <-accepted
			if answer != "" {
				if a := p.Wait(t.Context()); !says(l.Addr().String(), "not an aggregator")(a) {
					t.Errorf("%+v", a)
				}
			}
			_ = p.Close()
			_ = c.Close()
			_ = l.Close()
		})
	}
}

// An aggregator that stops reading does not hold up Close for long.
func TestCloseOfFrozenAggregator(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	attached := make(chan net.Conn, 1)
	go func() {
		defer close(attached)
		c, err := l.Accept()
		if err != nil {
			return
		}
		sealed, err := authParent(c, siteKey)
		if err == nil {
			_, err = readMessage(sealed, maxMessage)
		}
		if err == nil {
			err = writeMessage(sealed, &message{Kind: msgStatus, Status: &status{Window: 9}}, time.Minute)
		}
		if err != nil {
			t.Error(err)
		}
		attached <- c
	}()
	p, states := openPort(t, portConfig(parseTree(t, l.Addr().String()+"=0-1", 2), 0))
	states.until(t, "usable", usableState)
	c := <-attached
	_ = p.Close() // the connection stays open meanwhile
	_ = c.Close()
}
