package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// What strangers send at scale, evenly over a time.
const (
	scaleDatagrams   = 1_000_000
	scaleConnections = 10_000
	scaleBatches     = 3000
	scaleTime        = 30 * time.Second
)

// TestStrangersAtScale is TestStrangers for half a minute, as large as SECURITY.md says,
// and measured: calls may take twice as long as when strangers do the same to somebody
// else on this machine, whose processors they share with us, and memory must not grow with
// what they send.
func TestStrangersAtScale(t *testing.T) {
	if os.Getenv(manyStrangers) == "" {
		t.Skipf("%s is not set: it takes a minute", manyStrangers)
	}
	const (
		size, n = 4, 30_000
		calmFor = 10 * time.Second
		most    = 64 << 20
	)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	group := freeGroup(t)
	o := allcast.Options{
		Size: size, Addr: l.Addr().String(), Groups: []netip.AddrPort{group}, Chunk: 1000,
		Key: bytes.Repeat([]byte{7}, 32), JoinTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}
	var joined, ranks sync.WaitGroup
	joined.Add(size)
	var over atomic.Bool
	meter := &callMeter{}
	errs := make([]error, size)
	stats := make([]allcast.Stats, size)
	for r := range size {
		ranks.Go(func() {
			o := o
			o.Rank = r
			c, err := allcast.JoinHooked(ctx, o, onSocket(l, r))
			joined.Done()
			if err != nil {
				errs[r] = err
				over.Store(true)
				return
			}
			turn := make(chan struct{}, 1)
			if r == 0 {
				go meter.run(turn)
			}
			_, err = gatherUntil(ctx, c, n, &over, turn)
			close(turn)
			stats[r] = c.Stats()
			errs[r] = errors.Join(err, c.Close())
		})
	}
	joined.Wait()
	<-time.After(calmFor) // what is measured
	calm, calmHeap := meter.next(), heap()

	hear := newEavesdropper(t, group)
	s := newForger(t, group, hear)
	var listens sync.WaitGroup
	listens.Go(func() { hear.run(s.conn.LocalAddr().(*net.UDPAddr).AddrPort()) })
	other, leave := bystanders(t, size, &listens)
	defer leave()
	elsewhere := attack(newForger(t, other.group, hear), []string{other.addr})
	leave()
	control := meter.next()
	here := attack(s, listening(t))
	attacked := meter.next()
	over.Store(true)
	ranks.Wait()
	hear.close()
	listens.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		s := stats[r]
		t.Logf("rank %d: %d foreign, %d duplicate, %d dropped, %d repaired, %d connections rejected",
			r, s.ForeignChunks, s.DuplicateChunks, s.DroppedChunks, s.RepairedChunks, s.RejectedConns)
	}
	t.Logf("strangers to others: %v; to us: %v", elsewhere, here)
	t.Logf("a call without strangers: %v", calm)
	t.Logf("with strangers to others: %v", control)
	t.Logf("with strangers to us:     %v; %.2f times", attacked, float64(attacked.mean())/float64(control.mean()))
	t.Logf("heap: %d KiB without, %d KiB at most with strangers", calmHeap>>10, here.heap>>10)
	if attacked.mean() > 2*control.mean() {
		t.Errorf("a call takes %v with strangers, %v if they are at somebody else: want at most twice as long", attacked.mean(), control.mean())
	}
	if here.heap > calmHeap+most {
		t.Errorf("the heap grew from %d to %d bytes: want at most %d more", calmHeap, here.heap, most)
	}
}

// attacked is what strangers did.
type attacked struct {
	datagrams, connections int
	took                   time.Duration
	heap                   uint64 // most meanwhile
}

func (a attacked) String() string {
	return fmt.Sprintf("%d datagrams and %d connections in %v", a.datagrams, a.connections, a.took.Round(time.Millisecond))
}

// attack sends everything that strangers send.
func attack(s *forger, addrs []string) (a attacked) {
	defer s.close()
	knock := &knocker{rnd: rand.New(rand.NewPCG(1, 1))}
	defer knock.close()
	begin := time.Now()
	for b := range scaleBatches {
		time.Sleep(time.Until(begin.Add(scaleTime * time.Duration(b) / scaleBatches)))
		for have := scaleDatagrams * b / scaleBatches; have < scaleDatagrams*(b+1)/scaleBatches; have++ {
			if s.send() {
				a.datagrams++
			}
		}
		for have := scaleConnections * b / scaleBatches; have < scaleConnections*(b+1)/scaleBatches && len(addrs) > 0; have++ {
			knock.at(addrs[have%len(addrs)])
		}
		if b%100 == 0 {
			a.heap = max(a.heap, heap())
		}
	}
	a.took, a.connections = time.Since(begin), knock.made
	return a
}

// bystander is somebody else that strangers can be at.
type bystander struct {
	group netip.AddrPort
	addr  string
}

// bystanders read and forget: as many sockets in a group as we have ranks, and a listener.
func bystanders(t *testing.T, size int, wg *sync.WaitGroup) (b bystander, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b = bystander{freeGroup(t), l.Addr().String()}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	all := []io.Closer{l}
	for range size {
		e := newEavesdropper(t, b.group)
		all = append(all, e.conn)
		wg.Go(func() {
			_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{e.conn}, make([]byte, 1<<16))
		})
	}
	return b, func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// A callMeter takes the time of calls, of which it is told when one begins.
type callMeter struct {
	mu    sync.Mutex
	times callTimes
}

func (m *callMeter) run(turn <-chan struct{}) {
	last := time.Now()
	for range turn {
		now := time.Now()
		m.mu.Lock()
		m.times = append(m.times, now.Sub(last))
		m.mu.Unlock()
		last = now
	}
}

// next returns what was measured since the last time.
func (m *callMeter) next() callTimes {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.times
	m.times = nil
	slices.Sort(t)
	return t
}

// callTimes are sorted.
type callTimes []time.Duration

func (c callTimes) mean() time.Duration {
	var sum time.Duration
	for _, d := range c {
		sum += d
	}
	return sum / time.Duration(max(1, len(c)))
}

func (c callTimes) String() string {
	if len(c) == 0 {
		return "no calls"
	}
	round := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return "mean " + round(c.mean()) + ", median " + round(c[len(c)/2]) + ", 99 % " + round(c[len(c)*99/100]) + ", most " + round(c[len(c)-1])
}
