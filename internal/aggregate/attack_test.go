package aggregate

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
)

// Strangers send forged and malformed datagrams and open garbage connections while a job runs. The aggregator ignores
// and counts them, its memory does not grow, and the job gets right sums.
func TestStrangers(t *testing.T) {
	datagrams, connections := testenv.Large(100_000), testenv.Large(1000)
	s := listen(t, Config{})
	w := join(t, oneLevel(t, s, 4), nil)
	window := w.ready(t)
	w.reduceScatter(t, 1, 1, window, 100_000) // all buffers exist now
	before, slots := heap(), s.State().Memory
	routines, files := runtime.NumGoroutine(), descriptors()

	var number atomic.Uint32
	number.Store(1)
	var wg sync.WaitGroup
	wg.Go(func() { forge(t, s, datagrams, &number) })
	wg.Go(func() { knock(t, s, connections) })
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	calls := 0
	for attacked := true; attacked; calls++ {
		select {
		case <-done:
			attacked = false // one more call, after the attack
		default:
		}
		w.reduceScatter(t, 1, number.Add(1), window, 100_000)
	}

	ignored := func(d Data) int { return int(d.Malformed + d.Unknown + d.Forged + d.Dropped) }
	if !testenv.Soon(func() bool { return ignored(s.State().Data) >= datagrams }) {
		t.Errorf("%d of %d datagrams are counted: %+v", ignored(s.State().Data), datagrams, s.State().Data)
	}
	if d := s.State().Data; d.Malformed == 0 || d.Unknown == 0 || d.Forged == 0 || d.Invalid != 0 {
		t.Errorf("%+v", d)
	}
	count := func() int {
		c := s.State().Connections
		return int(c.Strangers + c.WrongKeys + c.Versions)
	}
	if !testenv.Soon(func() bool { return count() == connections }) {
		t.Errorf("%d of %d connections are counted: %+v", count(), connections, s.State().Connections)
	}
	if after := s.State().Memory; after != slots {
		t.Errorf("slots take %d bytes, and %d before", after, slots)
	}
	const limit = 4 << 20
	if after := heap(); after > before+limit {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
	if !testenv.Soon(func() bool { return runtime.NumGoroutine() <= routines && descriptors() <= files }) {
		t.Errorf("%d goroutines and %d descriptors, and %d and %d before", runtime.NumGoroutine(), descriptors(), routines,
			files)
	}
	t.Logf("inc: %d right calls during the attack; %+v", calls, s.State().Data)
}

// descriptors returns the number of open files, where the system tells.
func descriptors() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// heap returns the bytes of live objects.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first one may only move pools to their victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// forge sends datagrams that no aggregator may use. The attacker knows everything but the token.
func forge(t *testing.T, s *Server, n int, number *atomic.Uint32) {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	rnd := rand.New(rand.NewPCG(3, 3))
	b := make([]byte, 1500)
	for i := range n {
		h := inc.Header{
			Kind: inc.Contribution, Type: uint8(reduce.F32), Reduce: uint8(reduce.Sum), Session: 7, Comm: 1,
			Number: number.Load() + uint32(rnd.IntN(2)), Place: rnd.Uint32N(500), Owner: uint16(rnd.IntN(4)),
			Child: uint16(rnd.IntN(4)), Token: rnd.Uint64(), Try: uint8(rnd.IntN(3)),
		}
		size := inc.HeaderSize + 1024
		switch i % 8 {
		case 0: // noise of any length; the first byte may be that of a contribution
			for k := range b {
				b[k] = byte(rnd.Uint32())
			}
			binary.LittleEndian.PutUint32(b[4:], h.Session^1)
			size = rnd.IntN(len(b))
		case 1: // truncated
			h.Put(b)
			size = rnd.IntN(inc.HeaderSize + 1)
		case 2:
			h.Kind = inc.Result
			h.Put(b)
		case 3:
			h.Session = rnd.Uint32() | 1<<31
			h.Put(b)
		case 4: // a new communicator
			h.Comm = rnd.Uint32()
			h.Put(b)
		case 5: // impossible values
			h.Owner, h.Child, h.Place = 0xffff, 0xffff, 0xffffffff
			h.Put(b)
		default: // a contribution of the current or the next operation, except for its token
			h.Put(b)
		}
		if size == 0 {
			size = 1 // an empty datagram is malformed as well, but some kernels do not queue it
		}
		for {
			if _, err := c.Write(b[:size]); err == nil {
				break
			}
			runtime.Gosched() // the queue is full
		}
		if i%256 == 0 {
			// A flood would only fill the queue, and the kernel would drop most of it.
			for end := time.Now().Add(200 * time.Microsecond); time.Now().Before(end); {
				runtime.Gosched()
			}
		}
	}
}

// knock opens connections and sends anything but a valid proof. Some stay silent until the aggregator has evicted or
// outlived them.
func knock(t *testing.T, s *Server, n int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(4, 4))
	random := make([]byte, 4096)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range n {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		for k := range random {
			random[k] = byte(rnd.Uint32())
		}
		p := newPreamble()
		var data []byte
		switch i % 7 {
		case 0: // nothing
		case 1:
			data = random
		case 2:
			data = []byte("GET / HTTP/1.1\r\nHost: allcast\r\n\r\n")
		case 3: // a greeting without the rest
			data = p[:]
		case 4: // a greeting with a wrong proof, and a message
			data = append(p[:], random...)
		case 5: // another version
			p[len(magic)]++
			data = append(p[:], random...)
		case 6: // half of a greeting
			data = p[:10]
		}
		_, _ = c.Write(data) // the aggregator may close the connection meanwhile
		if i%2 == 0 {
			_ = c.Close()
		} else {
			open = append(open, c)
		}
	}
}

// Ranks also ignore and count what is not a sum of theirs.
func TestPortIgnoresStrangers(t *testing.T) {
	s := listen(t, Config{})
	w := join(t, oneLevel(t, s, 2), nil)
	window := w.ready(t)
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(w.ports[0].Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	good := inc.Header{Kind: inc.Result, Session: 7, Owner: 0, Token: 1}
	for _, change := range []func(*inc.Header){
		func(h *inc.Header) { h.Kind = inc.Contribution },
		func(h *inc.Header) { h.Session = 8 },
		func(h *inc.Header) { h.Owner = 1 },
		func(h *inc.Header) { h.Kind = inc.Offer },
		func(h *inc.Header) { h.Kind, h.Child = inc.Want, 1 }, // of another rank
	} {
		h := good
		change(&h)
		var b [inc.HeaderSize + 4]byte
		h.Put(b[:])
		if _, err := c.Write(b[:]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("short")); err != nil {
		t.Fatal(err)
	}
	if !testenv.Soon(func() bool { return w.ports[0].Stats().Foreign == 6 }) {
		t.Errorf("%+v", w.ports[0].Stats())
	}
	w.reduceScatter(t, 1, 1, window, 10_000)
}
