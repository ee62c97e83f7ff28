//go:build unix

package allcast_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/lab"
)

// The test binary is also a rank of a job: what processes do to each other cannot
// be tested within one.
const asRank = "ALLCAST_TEST_AS"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "hold" { // of a lab
		if err := lab.Hold(os.Args[2], os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	switch os.Getenv(asRank) {
	case "":
		// Tests count what they send, and join often.
		if os.Getenv("ALLCAST_CALIBRATE") == "" {
			_ = os.Setenv("ALLCAST_CALIBRATE", "off")
		}
		os.Exit(m.Run())
	case "gather":
		os.Exit(gatherForEver())
	case "idle":
		os.Exit(idle())
	case "survive":
		os.Exit(survive())
	case "rejoin":
		os.Exit(comeBack())
	case "enter":
		os.Exit(enterLab())
	case "strike":
		os.Exit(struck())
	}
	os.Exit(2)
}

// gatherForEver gathers until something fails, and says what.
func gatherForEver() int {
	ctx := context.Background()
	c, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "join:", err)
		return 1
	}
	const n = 200_000
	got := make([]byte, n*c.Size())
	algo := os.Getenv("ALLCAST_TEST_ALGO")
	for i := uint64(0); ; i++ {
		if err := c.Allgather(ctx, pattern(i, c.Rank(), n), got, allcast.WithAlgorithm(algo)); err != nil {
			var failed *allcast.RankError
			if !errors.As(err, &failed) {
				_, _ = fmt.Fprintln(os.Stdout, "odd:", err)
				return 1
			}
			_, _ = fmt.Fprintln(os.Stdout, "failed", failed.Rank)
			_ = c.Close()
			return 0
		}
		if !bytes.Equal(got, gathered(i, c.Size(), n)) {
			_, _ = fmt.Fprintln(os.Stdout, "wrong data")
			return 3
		}
		_, _ = fmt.Fprintln(os.Stdout, "gathered", i)
	}
}

// idle joins and does nothing until its input ends.
func idle() int {
	c, err := allcast.Join(context.Background(), allcast.Options{})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "join:", err)
		return 1
	}
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	_, _ = fmt.Fprintln(os.Stdout, "idle")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	_, _ = fmt.Fprintln(os.Stdout, "spent", spent.Microseconds())
	_ = c.Close()
	return 0
}

// process is a rank.
type process struct {
	cmd  *exec.Cmd
	out  *bufio.Scanner
	in   io.WriteCloser
	last string
}

// job starts ranks as processes.
func job(t *testing.T, size int, as string, env ...string) []*process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // rank 0 takes it over; its address in use would be retried
	all := make([]*process, size)
	for r := range all {
		all[r] = begin(t, exec.Command(os.Args[0]), append(env,
			asRank+"="+as, fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", size), "MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port)))
	}
	return all
}

// begin starts a process that does not outlive the test.
func begin(t *testing.T, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	p := &process{cmd: cmd}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = io.Discard
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// until reads what a process says up to a line that begins so.
func (p *process) until(prefix string) bool {
	for p.out.Scan() {
		if p.last = p.out.Text(); strings.HasPrefix(p.last, prefix) {
			return true
		}
	}
	return false
}

// TestDeath kills or stops a rank at a random moment: every survivor must name it.
func TestDeath(t *testing.T) {
	const size = 8
	times := 2
	if n := os.Getenv("ALLCAST_TEST_DEATHS"); n != "" {
		_, _ = fmt.Sscan(n, &times)
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for i := range times {
		for _, tt := range []struct {
			sig  syscall.Signal
			algo string
		}{{syscall.SIGKILL, "mcast"}, {syscall.SIGKILL, "ring"}, {syscall.SIGSTOP, "mcast"}} {
			t.Run(fmt.Sprintf("%d/%v/%s", i, tt.sig, tt.algo), func(t *testing.T) {
				all := job(t, size, "gather", "ALLCAST_TEST_ALGO="+tt.algo, "ALLCAST_TIMEOUT=2s")
				victim := r.IntN(size)
				if !all[victim].until("gathered") {
					t.Fatalf("rank %d did not begin: %s", victim, all[victim].last)
				}
				time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond) // anywhere in what it does
				if err := all[victim].cmd.Process.Signal(tt.sig); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for rank, p := range all {
					if rank == victim {
						continue
					}
					want := fmt.Sprintf("failed %d", victim)
					if !p.until("failed") || p.last != want {
						t.Errorf("rank %d said %q, want %q", rank, p.last, want)
					}
				}
				t.Logf("rank %d, %v: all survivors knew after %v", victim, tt.sig, time.Since(start).Round(time.Millisecond))
				for rank, p := range all {
					if rank != victim {
						if err := p.cmd.Wait(); err != nil {
							t.Errorf("rank %d: %v", rank, err)
						}
					}
				}
			})
		}
	}
}

// TestIdleCost reports what eight ranks cost that do nothing.
func TestIdleCost(t *testing.T) {
	d := time.Second
	if s := os.Getenv("ALLCAST_TEST_IDLE"); s != "" {
		d, _ = time.ParseDuration(s)
	}
	all := job(t, 8, "idle")
	for r, p := range all {
		if !p.until("idle") {
			t.Fatalf("rank %d: %s", r, p.last)
		}
	}
	<-time.After(d)
	var spent int
	for r, p := range all {
		_ = p.in.Close()
		var us int
		if !p.until("spent") {
			t.Fatalf("rank %d: %s", r, p.last)
		}
		_, _ = fmt.Sscanf(p.last, "spent %d", &us)
		spent += us
	}
	t.Logf("8 idle ranks: %.2f %% of a processor over %v", float64(spent)/float64(d.Microseconds())*100, d)
}
