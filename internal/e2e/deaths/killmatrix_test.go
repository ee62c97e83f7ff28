//go:build unix

package deaths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/testenv"
)

// The kill matrix: a rank is killed, stopped or cut off in a given phase of a given operation. The victim
// triggers the fault itself, so that it happens in exactly that phase.

// Variables of the ranks.
const (
	strikeVar = "ALLCAST_TEST_STRIKE" // case of the matrix: RANK FAULT PHASE OP ALGO
	labVar    = "ALLCAST_TEST_LAB"    // name of the lab to enter
)

const (
	goodCalls  = 3    // calls that complete before the fault
	maxCalls   = 3000 // calls after which the test stops waiting for the phase
	matrixSize = 4    // number of ranks
)

// stopsWait is why tests of ranks that fall silent, and whose connections stay open, run only in soak.
const stopsWait = "stops and cuts wait for timeouts, in which no other rank may be silent"

// limits returns the silence after which ranks declare another one lost, and a limit for naming the victim. A killed
// process closes its connections, so that its silence does not matter. For other faults the limit is the documented
// one, and what a busy machine may add.
func (s strike) limits() (silence, verdict time.Duration) {
	if s.fault == "kill" {
		return 3 * testenv.Patience, testenv.Patience
	}
	silence = 2 * time.Second
	return silence, silence + time.Second + 10*time.Second
}

// A strike is one case of the matrix.
type strike struct {
	victim          int
	fault, phase    string
	operation, algo string
}

func (s strike) String() string {
	return fmt.Sprintf("%s/%s/%s-%s/rank%d", s.fault, s.phase, s.operation, s.algo, s.victim)
}

func (s strike) env() string {
	return fmt.Sprintf("%s=%d %s %s %s %s", strikeVar, s.victim, s.fault, s.phase, s.operation, s.algo)
}

// event returns the name of the phase in joinhook.Hooks.Watch. Without multicast an operation has one phase
// only: its greeting, or the offer of a message, corresponds to the barrier, and its pieces to the multicast.
func (s strike) event() string {
	if s.algo == "mcast" {
		return s.phase
	}
	return map[string]string{"barrier": "transfer", "multicast": "put"}[s.phase]
}

// happens reports whether the operation has that phase on the victim.
func (s strike) happens() bool {
	switch {
	case s.phase == "idle":
		return true
	case s.algo != "mcast":
		return s.phase == "barrier" || s.phase == "multicast"
	case s.operation == "broadcast":
		// The root is the only sender: no rank passes its turn on, and the root fetches nothing.
		return s.phase != "activation" && (s.phase != "fetch" || s.victim != 0)
	}
	return true
}

// enterLab is a role: it enters a host of a lab and becomes a rank there.
func enterLab() int {
	l, err := lab.Attach(os.Getenv(labVar))
	if err == nil {
		err = e2e.Become("strike", func(command []string) error {
			return l.Exec("host"+os.Getenv("RANK"), command)
		})
	}
	e2e.Say("lab:", err)
	return 1
}

// strikeRole is a role, a rank of the matrix: it makes calls until one fails, and reports the error.
func strikeRole() int {
	var s strike
	_, _ = fmt.Sscan(os.Getenv(strikeVar), &s.victim, &s.fault, &s.phase, &s.operation, &s.algo)
	in := bufio.NewReader(os.Stdin)
	c, err := s.work(context.Background(), in)
	var failed *allcast.RankError
	if c == nil || !errors.As(err, &failed) {
		e2e.Say("unexpected:", err)
		return 1
	}
	e2e.Say("failed", failed.WorldRank, failed)
	_ = c.Close()
	return 0
}

func (s strike) work(ctx context.Context, in *bufio.Reader) (*allcast.Comm, error) {
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	victim := rank == s.victim
	// In the handshake a rank waits for its right neighbour. If that neighbour has to fetch, the wait is long
	// enough for the fault to hit it.
	if s.phase == "fetch" || s.phase == "handshake" && rank == (s.victim+1)%matrixSize {
		_ = os.Setenv("ALLCAST_FAULT", "drop=20%,seed=7")
	}
	var calls atomic.Uint64 // calls that have returned
	join := ctx
	if done := false; victim && s.phase != "idle" {
		join = joinhook.With(ctx, joinhook.Hooks{Watch: func(_ int, _ uint32, _ uint64, phase string) {
			if !done && calls.Load() >= goodCalls && phase == s.event() {
				done = true
				s.hit(in)
			}
		}})
	}
	c, err := allcast.Join(join, allcast.Options{})
	if err != nil {
		return nil, err
	}
	for i := range uint64(maxCalls) {
		if s.phase == "idle" && i == goodCalls {
			e2e.Say("idle")
			_, _ = in.ReadString('\n') // the victim: all ranks are idle; others: the fault has happened
			if victim {
				s.hit(in)
			}
		}
		if err := s.call(ctx, c, i); err != nil {
			return c, err
		}
		calls.Add(1)
	}
	return c, errors.New("no call has failed")
}

// call makes one call and compares every byte.
func (s strike) call(ctx context.Context, c *allcast.Comm, i uint64) error {
	const n = 300_000
	switch s.operation {
	case "allgather":
		return calltest.Allgather(ctx, c, i, n, s.algo)
	case "broadcast":
		i *= matrixSize // rank 0 is the root of all of them
	}
	return calltest.Collectives[s.operation](ctx, c, calltest.OnHeap, i, n, s.algo)
}

// hit triggers the fault in this process. For a cut, the test cuts the link while the victim waits here.
func (s strike) hit(in *bufio.Reader) {
	e2e.Say("now")
	switch s.fault {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "cut":
		_, _ = in.ReadString('\n')
	}
}

// multicasts are the operations with all phases, and one by ring.
var multicasts = [][2]string{{"broadcast", "mcast"}, {"allgather", "mcast"}, {"allgather", "ring"}}

// others returns the operations that have few phases, each with one algorithm. In those with a root, the ranks
// take turns as the root.
func others() (all [][2]string) {
	for _, op := range slices.Sorted(maps.Keys(calltest.Collectives)) {
		if op != "broadcast" && op != "allgather" {
			all = append(all, [2]string{op, calltest.Algorithms(op)[0]})
		}
	}
	return all
}

// matrix lists the cases of a fault, by default in all phases.
func matrix(fault string, operations [][2]string, victims []int, phases ...string) (all []strike) {
	if len(phases) == 0 {
		phases = []string{"barrier", "activation", "multicast", "fetch", "handshake", "idle"}
	}
	for _, op := range operations {
		for _, phase := range phases {
			for _, v := range victims {
				if s := (strike{v, fault, phase, op[0], op[1]}); s.happens() {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// TestKills kills a rank in every phase of a multicast, and in one phase of the other operations. Every survivor must
// name it, in time.
func TestKills(t *testing.T) {
	for _, s := range slices.Concat(
		matrix("kill", multicasts, []int{2}), matrix("kill", others(), []int{2}, "multicast"),
	) {
		t.Run(s.String(), func(t *testing.T) { s.test(t, nil) })
	}
}

// TestKillMatrix kills, stops and cuts off two ranks in every phase of every operation.
func TestKillMatrix(t *testing.T) {
	testenv.Soak(t, stopsWait+"; TestKills is a part of the matrix")
	worst := map[string]time.Duration{}
	cases := 0
	for _, fault := range []string{"kill", "stop", "cut"} {
		t.Run(fault, func(t *testing.T) {
			var l *lab.Lab
			if fault == "cut" {
				l = newLab(t)
			}
			for _, s := range matrix(fault, slices.Concat(multicasts, others()), []int{0, 2}) {
				t.Run(s.String(), func(t *testing.T) {
					took := s.test(t, l)
					worst[s.fault] = max(worst[s.fault], took)
					cases++
				})
			}
		})
	}
	t.Logf("%d cases; the last survivor named the victim after %v at most", cases, worst)
}

// newLab builds a network whose links can be cut.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := lab.Config{Name: "matrix", Topology: fmt.Sprintf("star:%d", matrixSize)}
	l, err := lab.Up(t.Context(), cfg, lab.Options{Self: []string{self}})
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

// start starts the ranks, in a lab or on this machine.
func (s strike) start(t *testing.T, l *lab.Lab) []*e2e.Process {
	t.Helper()
	silence, _ := s.limits()
	env := []string{s.env(), fmt.Sprint("ALLCAST_TIMEOUT=", silence)}
	if l == nil {
		return e2e.Start(t, matrixSize, "strike", env...)
	}
	env = append(env, labVar+"="+l.Plan.Config.Name, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		"MASTER_PORT=29500", "MASTER_ADDR="+l.Plan.HostAddr(0).String())
	all := make([]*e2e.Process, matrixSize)
	for rank := range all {
		all[rank] = e2e.StartRank(t, rank, len(all), "enter", env...)
	}
	return all
}

// test runs a case, and returns the time until the last survivor named the victim.
func (s strike) test(t *testing.T, l *lab.Lab) time.Duration {
	t.Helper()
	all := s.start(t, l)
	victim := all[s.victim]
	if s.phase == "idle" {
		// A rank may return from its call before others do, and must not die before they are idle too.
		for rank, p := range all {
			if !p.Until("idle") {
				t.Errorf("rank %d said %q, want idle", rank, p.Last())
			}
		}
		if err := victim.Tell("strike"); err != nil {
			t.Errorf("rank %d: %v", s.victim, err)
		}
	}
	if !victim.Until("now") {
		t.Fatalf("rank %d did not reach the %s phase: %s", s.victim, s.phase, victim.Last())
	}
	start := time.Now()
	host := fmt.Sprint("host", s.victim)
	if s.fault == "cut" {
		if err := l.SetLink(host, "", false); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.SetLink(host, "", true); err != nil {
				t.Error(err)
			}
		}()
		if err := victim.Tell("cut"); err != nil {
			t.Fatal(err)
		}
	}
	for rank, p := range all {
		if s.phase == "idle" && rank != s.victim {
			if err := p.Tell("continue"); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
	var took time.Duration
	for rank, p := range all {
		switch want := fmt.Sprintf("failed %d ", s.victim); {
		case rank == s.victim && s.fault != "cut":
			continue
		case !p.Until("failed"):
			t.Errorf("rank %d said %q, want %q", rank, p.Last(), want)
		case rank == s.victim: // a rank that is cut off loses all others and may name any of them
		case !strings.HasPrefix(p.Last(), want):
			t.Errorf("rank %d said %q, want %q", rank, p.Last(), want)
		}
		took = max(took, time.Since(start))
	}
	if _, verdict := s.limits(); took > verdict {
		t.Errorf("the survivors took %v, want at most %v", took, verdict)
	}
	t.Logf("all survivors had named it after %v", took.Round(time.Millisecond))
	s.end(t, all)
	return took
}

// end waits for the survivors.
func (s strike) end(t *testing.T, all []*e2e.Process) {
	t.Helper()
	for rank, p := range all {
		if rank == s.victim {
			p.Kill()
		} else if err := p.Wait(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
