//go:build linux

package aggregators

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/testenv"
)

const (
	labVar = "ALLCAST_TEST_LAB" // name of the lab to enter

	size  = 4
	block = 256 << 10 // bytes per rank; at the lab's rate, one call takes some 30 ms

	// bound is the time in which a call completes although an aggregator fails in it, far below the timeout of ranks. It
	// takes two seconds without a sum, and then fetching point to point; the rest is what a busy machine may add.
	bound = testenv.Patience
	// limit is the time after which the test gives up waiting for ranks.
	limit = 2 * time.Minute
)

// enterLab is a role: it enters a host of a lab and becomes a rank there.
func enterLab() int {
	l, err := lab.Attach(os.Getenv(labVar))
	if err == nil {
		err = e2e.Become("reduce", func(command []string) error {
			return l.Exec("host"+os.Getenv("RANK"), command)
		})
	}
	e2e.Say("lab:", err)
	return 1
}

// reduce is a role: it adds up numbers by aggregators, again and again, until the test ends rank 0's input. It says
// "summed by aggregators" or "summed point to point: REASON" after each call, and "marked" after the test has written a
// line to rank 0.
func reduce() int {
	ctx := context.Background()
	c, err := allcast.Join(ctx, allcast.Options{NoCalibration: true})
	if err == nil {
		err = errors.Join(reduceAll(ctx, c), c.Close())
	}
	if err != nil {
		e2e.Say("failed:", err)
		return 1
	}
	return 0
}

func reduceAll(ctx context.Context, c *allcast.Comm) error {
	orders := make(chan byte, 1)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- orderMark
		}
		orders <- orderEnd
	}()
	for i := uint64(0); ; i++ {
		fallback, err := reduceOnce(ctx, c, i)
		switch {
		case err != nil:
			return fmt.Errorf("call %d: %w", i, err)
		case fallback == "":
			e2e.Say("summed by aggregators")
		default:
			e2e.Say("summed point to point:", fallback)
		}
		order := []byte{0}
		if c.Rank() == 0 {
			select {
			case order[0] = <-orders:
			default:
			}
		}
		if err := c.Broadcast(ctx, order, 0, allcast.WithAlgorithm("binomial")); err != nil {
			return err
		}
		switch order[0] {
		case orderMark:
			e2e.Say("marked")
		case orderEnd:
			return nil
		}
	}
}

// Orders that rank 0 passes on to all ranks.
const (
	orderMark = 1 + iota
	orderEnd
)

// reduceOnce makes one call, compares every byte, and returns why aggregators did not make all sums. Each second
// call is an Allreduce.
func reduceOnce(ctx context.Context, c *allcast.Comm, i uint64) (fallback string, err error) {
	const n = block / 4
	total := n * c.Size()
	send, want := allcast.Bytes(calltest.Numbers(i, c.Rank(), total)), calltest.Sum(i, c.Size(), total)
	by := allcast.WithAlgorithm("inc")
	var r *allcast.Request
	var buf []byte
	if i%2 == 0 {
		buf, want = make([]byte, block), want[c.Rank()*n:][:n]
		r, err = c.StartReduceScatter(send, buf, allcast.Float32, allcast.Sum, by)
	} else {
		buf = make([]byte, 4*total)
		r, err = c.StartAllreduce(send, buf, allcast.Float32, allcast.Sum, by)
	}
	if err := calltest.Equal(calltest.Wait(ctx, r, err, "inc"), buf, allcast.Bytes(want)); err != nil {
		return "", err
	}
	return r.Info().Fallback, nil
}

// newLab builds a network with aggregators in leaf0, leaf1 and spine1.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := lab.Config{Name: fmt.Sprint("agg", os.Getpid()), Topology: "fat-tree:4,2,2", Rate: 200e6, Inc: true}
	l, err := lab.Up(t.Context(), cfg, lab.Options{Self: []string{self}, Aggregator: []string{self, "aggregator"}})
	if errors.Is(err, lab.ErrUnable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A job is the ranks of a test.
type job struct {
	lab   *lab.Lab
	ranks []*e2e.Process
}

// newJob starts ranks and waits until aggregators have added up numbers for all.
func newJob(t *testing.T) *job {
	t.Helper()
	j := &job{lab: newLab(t)}
	for rank := range size {
		j.ranks = append(j.ranks, e2e.StartRank(t, rank, size, "enter", labVar+"="+j.lab.Plan.Config.Name,
			"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_PORT=29500", "MASTER_ADDR="+j.lab.Plan.HostAddr(0).String()))
	}
	j.until(t, byAggregators)
	return j
}

// What ranks say after a call.
const (
	byAggregators = "summed by aggregators"
	pointToPoint  = "summed point to point:"
)

// until reads what each rank says, up to a line with a prefix, and returns these lines. All calls before must have
// returned the right sum.
func (j *job) until(t *testing.T, prefix string) (lines []string) {
	t.Helper()
	giveUp := time.AfterFunc(limit, func() {
		for _, p := range j.ranks {
			_ = p.Signal(syscall.SIGKILL)
		}
	})
	defer giveUp.Stop()
	for rank, p := range j.ranks {
		for {
			if !p.Until("") {
				t.Fatalf("rank %d ended, and last said %q; want %q", rank, p.Last(), prefix)
			}
			if strings.HasPrefix(p.Last(), prefix) {
				break
			}
			if !strings.HasPrefix(p.Last(), "summed") && p.Last() != "marked" {
				t.Fatalf("rank %d said %q", rank, p.Last())
			}
		}
		lines = append(lines, p.Last())
	}
	return lines
}

// mark skips what ranks have said about earlier calls.
func (j *job) mark(t *testing.T) {
	t.Helper()
	if err := j.ranks[0].Tell("mark"); err != nil {
		t.Fatal(err)
	}
	j.until(t, "marked")
}

// end ends the ranks.
func (j *job) end(t *testing.T) {
	t.Helper()
	j.ranks[0].EndInput()
	for rank, p := range j.ranks {
		p.Drain()
		if strings.HasPrefix(p.Last(), "failed") {
			t.Errorf("rank %d said %q", rank, p.Last())
		}
		if err := p.Wait(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// An aggregator fails in the middle of a call, and works again later. All calls return the right sum in time. Meanwhile
// they run point to point and name the aggregator.
func TestFaults(t *testing.T) {
	for _, fault := range []struct {
		name      string
		hit, mend func(l *lab.Lab, victim string) error
		named     bool // whether the first call that notices the fault knows the victim
	}{
		{
			name: "kill", named: true,
			hit:  func(l *lab.Lab, victim string) error { return l.SignalAggregator(victim, syscall.SIGKILL) },
			mend: func(l *lab.Lab, victim string) error { return l.RestartAggregator(context.Background(), victim) },
		},
		{
			name: "stop",
			hit:  func(l *lab.Lab, victim string) error { return l.SignalAggregator(victim, syscall.SIGSTOP) },
			mend: func(l *lab.Lab, victim string) error { return l.SignalAggregator(victim, syscall.SIGCONT) },
		},
		{
			// Ranks lose their session, and attach to the new process after a while.
			name: "restart", named: true,
			hit:  func(l *lab.Lab, victim string) error { return l.RestartAggregator(context.Background(), victim) },
			mend: func(*lab.Lab, string) error { return nil },
		},
	} {
		for _, victim := range []string{"leaf1", "spine1"} {
			t.Run(fault.name+"/"+victim, func(t *testing.T) {
				j := newJob(t)
				if err := fault.hit(j.lab, victim); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				lines := j.until(t, pointToPoint)
				took := time.Since(start)
				t.Logf("the call took %v", took.Round(time.Millisecond))
				if took > bound {
					t.Errorf("the call took %v, want at most %v", took, bound)
				}
				j.named(t, victim, lines, fault.named)
				j.until(t, pointToPoint) // and so do later calls
				if err := fault.mend(j.lab, victim); err != nil {
					t.Fatal(err)
				}
				j.mark(t)
				j.until(t, byAggregators)
				t.Logf("aggregators worked again %v after the fault", time.Since(start).Round(time.Millisecond))
				j.end(t)
			})
		}
	}
}

// named checks that ranks name the aggregator that fails.
func (j *job) named(t *testing.T, victim string, lines []string, want bool) {
	t.Helper()
	var addr string
	for _, a := range j.lab.Plan.Aggregators {
		if a.Switch.Name == victim {
			addr = a.Addr.String()
		}
	}
	t.Logf("%s (%s): %q", victim, addr, lines)
	// On a busy machine, an earlier call may have fallen back because a sum was late.
	for begin := time.Now(); want && !strings.Contains(strings.Join(lines, "\n"), addr); {
		if time.Since(begin) > testenv.Patience {
			t.Fatalf("no rank names the aggregator %s: %q", addr, lines)
		}
		lines = j.until(t, pointToPoint)
	}
}
