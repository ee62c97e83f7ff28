package allcast_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/lab"
)

// The kill matrix: a rank is killed, stopped or cut off in a given phase of a given
// operation. It does that to itself, so that it happens there and nowhere else.

// What a rank of the matrix is told, and where it runs.
const (
	strikeVar = "ALLCAST_TEST_STRIKE" // RANK FAULT PHASE OP ALGO
	insideVar = "ALLCAST_TEST_LAB"    // the lab to go into
	fullVar   = "ALLCAST_TEST_DEATHS" // set: all of the matrix
)

const (
	// patient is what survivors wait for who is silent.
	patient = 2 * time.Second
	// verdict is when they must know at the latest by the manual, and slack what a busy
	// machine may add.
	verdict = patient + time.Second
	slack   = 10 * time.Second
	// before is how many calls end well before the one in which it happens.
	before = 3
	// enough calls without the phase in question: it does not come.
	enough = 3000
)

// A strike is a case of the matrix.
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

// event is the name by which Hooks.Watch calls the phase. A plan has no phases but one: its
// greeting is what a barrier is to multicast, and its data what the multicast is.
func (s strike) event() string {
	if s.algo == "mcast" {
		return s.phase
	}
	return map[string]string{"barrier": "transfer", "multicast": "put"}[s.phase]
}

// happens says whether an operation has the phase on that rank at all.
func (s strike) happens() bool {
	switch {
	case s.phase == "idle":
		return true
	case s.algo != "mcast":
		return s.phase == "barrier" || s.phase == "multicast"
	case s.operation == "broadcast":
		// There is one sender, so nobody passes a turn on, and it has nothing to fetch.
		return s.phase != "activation" && (s.phase != "fetch" || s.victim != 0)
	}
	return true
}

// enterLab goes into a host of a lab and becomes a rank there.
func enterLab() int {
	l, err := lab.Attach(os.Getenv(insideVar))
	if err == nil {
		var self string
		if self, err = os.Executable(); err == nil {
			_ = os.Setenv(asRank, "strike")
			err = l.Exec("host"+os.Getenv("RANK"), []string{self})
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, "lab:", err)
	return 1
}

// struck is a rank of the matrix: it works until something fails, and says what.
func struck() int {
	var s strike
	_, _ = fmt.Sscan(os.Getenv(strikeVar), &s.victim, &s.fault, &s.phase, &s.operation, &s.algo)
	in := bufio.NewReader(os.Stdin)
	c, err := s.work(context.Background(), in)
	var failed *allcast.RankError
	if c == nil || !errors.As(err, &failed) {
		_, _ = fmt.Fprintln(os.Stdout, "odd:", err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, "failed", failed.Rank, failed)
	_ = c.Close()
	return 0
}

func (s strike) work(ctx context.Context, in *bufio.Reader) (*allcast.Comm, error) {
	var h allcast.Hooks
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	victim := rank == s.victim
	// Who waits for its right neighbour in the handshake does so for a while if that one has
	// to fetch.
	if s.phase == "fetch" || s.phase == "handshake" && rank == (s.victim+1)%matrixSize {
		_ = os.Setenv("ALLCAST_FAULT", "drop=20%,seed=7")
	}
	if done := false; victim && s.phase != "idle" {
		h.Watch = func(comm uint32, seq uint64, what string) {
			if !done && comm == 0 && seq >= before && what == s.event() {
				done = true
				s.hit(in)
			}
		}
	}
	c, err := allcast.JoinHooked(ctx, allcast.Options{}, h)
	if err != nil {
		return nil, err
	}
	for i := range uint64(enough) {
		if s.phase == "idle" && i == before {
			if victim {
				s.hit(in)
			} else {
				_, _ = fmt.Fprintln(os.Stdout, "idle")
				_, _ = in.ReadString('\n') // it has happened
			}
		}
		if err := s.call(ctx, c, i); err != nil {
			return c, err
		}
	}
	return c, errors.New("nothing has failed")
}

// call makes one call and looks at every byte.
func (s strike) call(ctx context.Context, c *allcast.Comm, i uint64) error {
	const n = 300_000
	algo := allcast.WithAlgorithm(s.algo)
	if s.operation == "allgather" {
		got := make([]byte, n*c.Size())
		if err := c.Allgather(ctx, pattern(i, c.Rank(), n), got, algo); err != nil {
			return err
		}
		if !bytes.Equal(got, gathered(i, c.Size(), n)) {
			return fmt.Errorf("wrong data after call %d", i)
		}
		return nil
	}
	got := make([]byte, n)
	if c.Rank() == 0 {
		copy(got, pattern(i, 0, n))
	}
	if err := c.Broadcast(ctx, got, 0, algo); err != nil {
		return err
	}
	if !bytes.Equal(got, pattern(i, 0, n)) {
		return fmt.Errorf("wrong data after call %d", i)
	}
	return nil
}

// hit does it, to ourselves. A link is cut by who started us, while we wait here.
func (s strike) hit(in *bufio.Reader) {
	_, _ = fmt.Fprintln(os.Stdout, "now")
	switch s.fault {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "cut":
		_, _ = in.ReadString('\n')
	}
}

// matrix lists the cases of a fault.
func matrix(fault string, victims []int, phases ...string) (all []strike) {
	if len(phases) == 0 {
		phases = []string{"barrier", "activation", "multicast", "fetch", "handshake", "idle"}
	}
	for _, op := range [][2]string{{"broadcast", "mcast"}, {"allgather", "mcast"}, {"allgather", "ring"}} {
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

// TestKillMatrix hits a rank in every phase: every survivor must name it, in time.
func TestKillMatrix(t *testing.T) {
	if os.Getenv(fullVar) == "" {
		for _, s := range append(matrix("kill", []int{2}), matrix("stop", []int{2}, "multicast", "fetch")...) {
			t.Run(s.String(), func(t *testing.T) { s.test(t, nil) })
		}
		t.Logf("%s is not set: a part of the matrix, without links", fullVar)
		return
	}
	worst := map[string]time.Duration{}
	cases := 0
	for _, fault := range []string{"kill", "stop", "cut"} {
		t.Run(fault, func(t *testing.T) {
			var l *lab.Lab
			if fault == "cut" {
				l = newLab(t)
			}
			for _, s := range matrix(fault, []int{0, 2}) {
				t.Run(s.String(), func(t *testing.T) {
					took := s.test(t, l)
					worst[s.fault] = max(worst[s.fault], took)
					cases++
				})
			}
		})
	}
	t.Logf("%d cases; with a timeout of %v the last survivor knew after %v at most", cases, patient, worst)
}

// newLab is a network that links can be cut in.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Up(t.Context(), lab.Config{Name: "matrix", Topology: fmt.Sprintf("star:%d", matrixSize)}, lab.Options{Self: []string{self}})
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

const matrixSize = 4

// start starts the ranks, in a lab or on this machine.
func (s strike) start(t *testing.T, l *lab.Lab) []*process {
	t.Helper()
	env := []string{s.env(), fmt.Sprint("ALLCAST_TIMEOUT=", patient)}
	if l == nil {
		return job(t, matrixSize, "strike", env...)
	}
	all := make([]*process, matrixSize)
	for r := range all {
		all[r] = begin(t, exec.Command(os.Args[0]), append(env, insideVar+"="+l.Plan.Config.Name, asRank+"=enter", fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", len(all)),
			"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_PORT=29500", "MASTER_ADDR="+l.Plan.HostAddr(0).String()))
	}
	return all
}

// test runs a case, and returns when the last survivor knew.
func (s strike) test(t *testing.T, l *lab.Lab) time.Duration {
	t.Helper()
	all := s.start(t, l)
	victim := all[s.victim]
	if !victim.until("now") {
		t.Fatalf("rank %d did not come to the %s phase: %s", s.victim, s.phase, victim.last)
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
		_, _ = fmt.Fprintln(victim.in)
	}
	for rank, p := range all {
		if s.phase == "idle" && rank != s.victim {
			if !p.until("idle") {
				t.Errorf("rank %d said %q, want idle", rank, p.last)
			}
			_, _ = fmt.Fprintln(p.in)
		}
	}
	var took time.Duration
	for rank, p := range all {
		switch want := fmt.Sprintf("failed %d ", s.victim); {
		case rank == s.victim && s.fault != "cut":
			continue
		case !p.until("failed"):
			t.Errorf("rank %d said %q, want %q", rank, p.last, want)
		case rank == s.victim: // whom it names is as good as any: it has lost all
		case !strings.HasPrefix(p.last, want):
			t.Errorf("rank %d said %q, want %q", rank, p.last, want)
		}
		took = max(took, time.Since(start))
	}
	if took > verdict+slack {
		t.Errorf("it took %v, want at most %v and what a busy machine adds", took, verdict)
	}
	t.Logf("known after %v", took.Round(time.Millisecond))
	s.end(t, all)
	return took
}

// end waits for the survivors.
func (s strike) end(t *testing.T, all []*process) {
	t.Helper()
	for rank, p := range all {
		if rank == s.victim {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		} else if err := p.cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
