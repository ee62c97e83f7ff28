package strangers

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/e2e/attack"
	"github.com/allcast/allcast/internal/testenv"
)

// A job reduces by an aggregator while strangers without the site key send datagrams to it and connect to it. All
// sums are right, and the aggregator counts and ignores the strangers. They know the format of the datagrams, the
// session and the communicator, but not the token.
func TestStrangersAtAggregator(t *testing.T) {
	datagrams, connections := testenv.Large(20_000), testenv.Large(200)
	siteKey := []byte("the key of this site")
	s, err := aggregate.Listen(aggregate.Config{
		Listen: "127.0.0.1:0", SiteKey: siteKey, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var over atomic.Bool
	var strangers sync.WaitGroup
	strangers.Go(func() {
		defer over.Store(true)
		sendForged(t, s, datagrams)
		knock := attack.NewKnocker()
		defer func() { _ = knock.Close() }()
		for range connections {
			knock.At(s.Addr().String())
		}
	})
	o := allcast.Options{
		Aggregators: fmt.Sprintf("%v=0-%d", s.Addr(), size-1), SiteKey: siteKey, Logger: slog.New(slog.DiscardHandler),
	}
	var calls atomic.Int64
	allcasttest.Run(t, size, o, func(ctx context.Context, c *allcast.Comm) error {
		n, err := reduceUntil(ctx, c, &over)
		calls.Store(int64(n))
		return err
	})
	strangers.Wait()
	st := s.State()
	d := st.Data
	if ignored := d.Malformed + d.Unknown + d.Forged + d.Dropped; ignored < uint64(datagrams) || d.Sums == 0 {
		t.Errorf("%d datagrams of strangers: %+v", datagrams, d)
	}
	if !testenv.Soon(func() bool {
		n := s.State().Connections
		return int(n.Strangers+n.WrongKeys+n.Versions) == connections
	}) {
		t.Errorf("%d connections of strangers: %+v", connections, s.State().Connections)
	}
	t.Logf("inc: %d calls; %+v", calls.Load(), d)
}

// sendForged sends datagrams to an aggregator: noise, and contributions to the sessions that it has.
func sendForged(t *testing.T, s *aggregate.Server, n int) {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	rnd := rand.New(rand.NewPCG(5, 5))
	b := make([]byte, 1000)
	for i := range n {
		for k := range b {
			b[k] = byte(rnd.Uint32())
		}
		b[0] = byte(i % 3) // 1 is a contribution
		if jobs := s.State().Jobs; len(jobs) > 0 && i%2 == 0 {
			binary.LittleEndian.PutUint32(b[4:], jobs[0].Session)
			clear(b[16:28]) // communicator, number and place
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if _, err := c.Write(b[:1+rnd.IntN(len(b)-1)]); err == nil {
				break
			}
		}
	}
}

// reduceUntil reduces until rank 0 sees that over is set. Rank 0 announces its last call in the first element of each
// block, so that all ranks stop after the same call.
func reduceUntil(ctx context.Context, c *allcast.Comm, over *atomic.Bool) (calls int, err error) {
	const elements, last = 5000, 1 << 20
	send, recv := make([]byte, 4*elements*c.Size()), make([]byte, 4*elements)
	for {
		flag := uint32(0)
		if c.Rank() == 0 && over.Load() {
			flag = last
		}
		for i := range elements * c.Size() {
			v := uint32(calls + c.Rank() + i)
			if i%elements == 0 {
				v = flag
			}
			binary.LittleEndian.PutUint32(send[4*i:], v)
		}
		clear(recv)
		if err := c.ReduceScatter(ctx, send, recv, allcast.Uint32, allcast.Sum, allcast.WithAlgorithm("inc")); err != nil {
			return calls, err
		}
		for i := 1; i < elements; i++ {
			want := uint32(c.Size()*(calls+c.Rank()*elements+i) + c.Size()*(c.Size()-1)/2)
			if got := binary.LittleEndian.Uint32(recv[4*i:]); got != want {
				return calls, fmt.Errorf("inc: element %d of call %d is %d, want %d", i, calls, got, want)
			}
		}
		calls++
		switch first := binary.LittleEndian.Uint32(recv); first {
		case 0:
		case last:
			return calls, nil
		default:
			return calls, fmt.Errorf("inc: the first element of call %d is %d", calls, first)
		}
	}
}
