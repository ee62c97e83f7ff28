package ip

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// tcpRec is a handler that records its calls.
type tcpRec struct {
	mu      sync.Mutex
	changed chan struct{}

	msgs   map[int][]string
	order  map[int][]string // messages and ends of pieces, in order of arrival
	pieces map[int]map[fabric.Piece][]byte
	reads  map[int]map[fabric.ReadID][]byte
	done   map[int][]fabric.Piece
	lost   map[int][]error
	bad    []string

	hold bool // keep buffers instead of releasing them
	held []*fabric.Buffer
	on   func(from int, msg []byte)
}

func newTCPRec() *tcpRec {
	return &tcpRec{
		changed: make(chan struct{}),
		msgs:    map[int][]string{}, order: map[int][]string{}, done: map[int][]fabric.Piece{}, lost: map[int][]error{},
		pieces: map[int]map[fabric.Piece][]byte{}, reads: map[int]map[fabric.ReadID][]byte{},
	}
}

func (r *tcpRec) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *tcpRec) Message(from int, msg []byte) {
	r.change(func() {
		r.msgs[from] = append(r.msgs[from], string(msg))
		r.order[from] = append(r.order[from], string(msg))
	})
	if r.on != nil {
		r.on(from, msg)
	}
}

func (r *tcpRec) Data(from int, p fabric.Piece, off int64, b *fabric.Buffer) {
	r.change(func() {
		if r.pieces[from] == nil {
			r.pieces[from] = map[fabric.Piece][]byte{}
		}
		had := r.pieces[from][p]
		if int64(len(had)) != off {
			r.bad = append(r.bad, fmt.Sprintf("part at %d of %+v, had %d", off, p, len(had)))
		}
		had = append(had, b.B...)
		if had == nil {
			had = []byte{}
		}
		r.pieces[from][p] = had
		if int64(len(had)) == p.Len {
			r.order[from] = append(r.order[from], fmt.Sprintf("piece %d", p.Nth))
		}
		r.keep(b)
	})
}

func (r *tcpRec) ReadData(from int, q fabric.ReadID, off int64, b *fabric.Buffer) {
	r.change(func() {
		if r.reads[from] == nil {
			r.reads[from] = map[fabric.ReadID][]byte{}
		}
		had := r.reads[from][q]
		if int64(len(had)) != off {
			r.bad = append(r.bad, fmt.Sprintf("part at %d of %+v, had %d", off, q, len(had)))
		}
		r.reads[from][q] = append(had, b.B...)
		r.order[from] = append(r.order[from], fmt.Sprintf("read %d", q.ID))
		r.keep(b)
	})
}

func (r *tcpRec) keep(b *fabric.Buffer) {
	if r.hold {
		r.held = append(r.held, b)
		return
	}
	b.Release()
}

func (r *tcpRec) ReadIntoDone(from int, id fabric.ReadID, _ bool) {
	r.change(func() { r.bad = append(r.bad, fmt.Sprintf("%+v of rank %d ended as a direct read", id, from)) })
}

func (r *tcpRec) Registered(op fabric.OpKey, err error) {
	r.change(func() { r.bad = append(r.bad, fmt.Sprintf("%+v was registered later: %v", op, err)) })
}

func (r *tcpRec) PutDone(to int, p fabric.Piece) {
	r.change(func() { r.done[to] = append(r.done[to], p) })
}

func (r *tcpRec) Lost(peer int, err error) {
	r.change(func() { r.lost[peer] = append(r.lost[peer], err) })
}

// wait blocks until ok is true. It calls ok with r locked.
func (r *tcpRec) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(tcpPatience)
	for {
		r.mu.Lock()
		is, changed := ok(), r.changed
		r.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("never: %s\n%s", what, tcpStacks())
		}
	}
}

// waitLost returns the error that a peer was lost with.
func (r *tcpRec) waitLost(t *testing.T, peer int) error {
	t.Helper()
	r.wait(t, fmt.Sprintf("peer %d lost", peer), func() bool { return len(r.lost[peer]) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[peer][0]
}

func (r *tcpRec) waitMsg(t *testing.T, from int, msg string) {
	t.Helper()
	r.wait(t, fmt.Sprintf("%q from %d", msg, from), func() bool { return slices.Contains(r.msgs[from], msg) })
}

// check fails if the handler was called in a way that the contract forbids.
func (r *tcpRec) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bad {
		t.Error(b)
	}
	for peer, errs := range r.lost {
		if len(errs) > 1 {
			t.Errorf("peer %d was lost %d times: %v", peer, len(errs), errs)
		}
	}
}

var (
	tcpV4     = netip.MustParseAddr("127.0.0.1")
	tcpV6     = netip.MustParseAddr("::1")
	tcpSecret = []byte("the key of a job, thirty-two byt")
)

// tcpPatience is the time without progress after which a test fails, or a rank loses a peer unless the test
// says otherwise. It is generous, since the race detector on a busy machine slows ranks down.
const tcpPatience = 2 * time.Minute

// patientLimits are those of a rank that loses nobody because the machine is busy.
func patientLimits() *tcpLimits {
	l := tcpDefaults
	l.connect, l.goodbye, l.flush = tcpPatience, tcpPatience, tcpPatience
	return &l
}

// tcpProtected is the protection of all connections.
var tcpProtected = protectNothing

// tcpWorld is the ranks of a job, in one process.
type tcpWorld struct {
	ranks []*TCP
	recs  []*tcpRec
	addrs []string

	pollers []*Poller
}

// newTCPWorld starts n ranks; change may alter their configurations.
func newTCPWorld(t *testing.T, n int, local netip.Addr, change func(*TCPConfig, *tcpRec)) *tcpWorld {
	t.Helper()
	recs := make([]*tcpRec, n)
	handlers := make([]fabric.Handler, n)
	for i := range recs {
		recs[i] = newTCPRec()
		handlers[i] = recs[i]
	}
	w := openTCPWorld(t, local, handlers, func(cfg *TCPConfig) (blocks bool) {
		if change != nil {
			change(cfg, recs[cfg.Rank])
		}
		return recs[cfg.Rank].hold
	})
	w.recs = recs
	return w
}

// openTCPWorld starts a rank per handler. change may alter its configuration, and reports whether the
// handler blocks.
func openTCPWorld(t *testing.T, local netip.Addr, handlers []fabric.Handler, change func(*TCPConfig) bool) *tcpWorld {
	t.Helper()
	w := &tcpWorld{}
	n := len(handlers)
	ls := make([]*net.TCPListener, n)
	for i := range ls {
		l, err := Listen(local)
		if err != nil {
			if local.Is6() {
				t.Skip("no IPv6 loopback:", err)
			}
			t.Fatal(err)
		}
		ls[i] = l
		w.addrs = append(w.addrs, l.Addr().String())
	}
	t.Cleanup(func() { w.close(t) })
	for i := range ls {
		cfg := TCPConfig{
			Rank: i, Size: n, Listener: ls[i], Addrs: w.addrs, Secret: tcpSecret, Local: local,
			Secure: tcpProtected == protectSeal, Integrity: tcpProtected == protectSums, Timeout: tcpPatience,
			limits: patientLimits(),
		}
		blocks := change != nil && change(&cfg)
		// Ranks with and without a poller meet in all tests. A handler that keeps its buffers would
		// block the poller.
		if p, err := NewPoller(); i%2 == 1 && !blocks && err == nil {
			cfg.Poller = p
			w.pollers = append(w.pollers, p)
		} else if err == nil {
			_ = p.Close()
		}
		r, err := NewTCP(cfg, handlers[i])
		if err != nil {
			t.Fatal(err)
		}
		w.ranks = append(w.ranks, r)
	}
	return w
}

// close closes all ranks at the same time, and checks that nothing is left.
func (w *tcpWorld) close(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range w.ranks {
		wg.Go(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if n := r.conns(); n != 0 {
				t.Errorf("rank %d has %d connections after Close", r.cfg.Rank, n)
			}
		})
	}
	wg.Wait()
	for _, p := range w.pollers {
		_ = p.Close()
	}
	for _, r := range w.recs {
		r.check(t)
	}
	// A goroutine that Close has waited for may still run its last instructions.
	s := tcpStacks()
	for end := time.Now().Add(tcpPatience); s != "" && time.Now().Before(end); s = tcpStacks() {
		runtime.Gosched()
	}
	if s != "" {
		t.Errorf("goroutines are left:\n%s", s)
	}
}

// conns is the number of open authenticated connections, in both directions.
func (t *TCP) conns() (n int) {
	for _, p := range t.others {
		p.mu.Lock()
		if p.out != nil {
			n++
		}
		if p.in != nil {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// tcpStacks is the stacks of the reliable side's goroutines.
func tcpStacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		for _, line := range strings.Split(g, "\n") {
			if strings.HasPrefix(line, "created by") {
				break
			}
			// Goroutines that run tests of this package do not count.
			if strings.Contains(line, ".(*peer") || strings.Contains(line, ".(*TCP).accept") ||
				strings.Contains(line, ".(*TCP).greet") {
				out = append(out, g)
				break
			}
		}
	}
	return strings.Join(out, "\n\n")
}

// until waits until ok is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(tcpPatience); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// tcpFill is n bytes that differ by seed and place.
func tcpFill(n int, seed byte) []byte {
	b := bytes.Repeat([]byte{seed}, n)
	for i := range b {
		b[i] += byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return b
}
