package strangers

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/e2e/attack"
	"github.com/allcast/allcast/internal/testenv"
)

// The attack at scale is spread evenly over its duration.
const (
	scaleDatagrams   = 1_000_000
	scaleConnections = 10_000
	scaleBatches     = 3000
	scaleTime        = 30 * time.Second
)

// TestStrangersAtScale measures TestStrangers at the scale of SECURITY.md. The baseline is the same attack
// on another target on this machine, which uses the same processors. Calls may take at most twice as long
// as in the baseline, and memory must not grow with the number of datagrams.
func TestStrangersAtScale(t *testing.T) {
	testenv.NeedVar(t, "ALLCAST_TEST_STRANGERS", "it takes a minute")
	const (
		calmFor   = 10 * time.Second
		maxGrowth = 64 << 20 // bytes of heap
	)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	j, l := newTarget(t)
	j.start(ctx, l)
	meter := &callMeter{}
	go meter.run(j.turn)
	<-time.After(calmFor) // duration of the measurement
	calm, calmHeap := meter.next(), heap()

	hear := attack.NewEavesdropper(t, j.group)
	forge := attack.NewForger(t, j.group, hear)
	var listens sync.WaitGroup
	listens.Go(func() { hear.Run(forge) })
	other, leave := bystanders(t, &listens)
	defer leave()
	elsewhere := run(attack.NewForger(t, other.group, hear), []string{other.addr})
	leave()
	control := meter.next()
	here := run(forge, attack.Listening(t))
	attacked := meter.next()
	j.over.Store(true)
	j.wait(t)
	_ = hear.Close()
	listens.Wait()
	ratio := float64(attacked.mean()) / float64(control.mean())
	t.Logf("attack on bystanders: %v; on the job: %v", elsewhere, here)
	t.Logf("a call without an attack:     %v", calm)
	t.Logf("during that on bystanders:    %v", control)
	t.Logf("during the attack on the job: %v; %.2f times as long", attacked, ratio)
	t.Logf("heap: %d KiB without an attack, at most %d KiB during it", calmHeap>>10, here.heap>>10)
	if ratio > 2 || math.IsNaN(ratio) {
		t.Errorf("a call takes %v under attack, %v while others are attacked: want at most twice as long",
			attacked.mean(), control.mean())
	}
	if here.heap > calmHeap+maxGrowth {
		t.Errorf("the heap grew from %d to %d bytes: want at most %d more", calmHeap, here.heap, maxGrowth)
	}
}

// result describes an attack.
type result struct {
	datagrams, connections int
	took                   time.Duration
	heap                   uint64 // largest heap during the attack
}

func (a result) String() string {
	return fmt.Sprintf("%d datagrams and %d connections in %v",
		a.datagrams, a.connections, a.took.Round(time.Millisecond))
}

// run sends all datagrams and makes all connections of an attack.
func run(forge *attack.Forger, addrs []string) (a result) {
	defer func() { _ = forge.Close() }()
	knock := attack.NewKnocker()
	defer func() { _ = knock.Close() }()
	begin := time.Now()
	for b := range scaleBatches {
		time.Sleep(time.Until(begin.Add(scaleTime * time.Duration(b) / scaleBatches)))
		for have := scaleDatagrams * b / scaleBatches; have < scaleDatagrams*(b+1)/scaleBatches; have++ {
			if forge.SendNext() {
				a.datagrams++
			}
		}
		last := scaleConnections * (b + 1) / scaleBatches
		for have := scaleConnections * b / scaleBatches; len(addrs) > 0 && have < last; have++ {
			knock.At(addrs[have%len(addrs)])
		}
		if b%100 == 0 {
			a.heap = max(a.heap, heap())
		}
	}
	a.took, a.connections = time.Since(begin), knock.Made()
	return a
}

// bystander is the address of another target.
type bystander struct {
	group netip.AddrPort
	addr  string
}

// bystanders opens as many sockets in a group as the job has ranks, and a listener. They discard
// everything.
func bystanders(t *testing.T, wg *sync.WaitGroup) (b bystander, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b = bystander{attack.FreeGroup(t), l.Addr().String()}
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
		e := attack.NewEavesdropper(t, b.group)
		all = append(all, e)
		wg.Go(func() {
			_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{e}, make([]byte, 1<<16))
		})
	}
	return b, func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// A callMeter measures the time from the start of one call to the start of the next.
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

// next returns the times since it was last called.
func (m *callMeter) next() callTimes {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.times
	m.times = nil
	slices.Sort(t)
	return t
}

// callTimes are sorted durations of calls.
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
	return fmt.Sprintf("mean %s, median %s, 99 %% %s, max %s",
		round(c.mean()), round(c[len(c)/2]), round(c[len(c)*99/100]), round(c[len(c)-1]))
}
