//go:build unix

package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each rank gets its rank number, each line starts with the rank, and an incomplete last line gets a line feed.
func TestRanksAndPrefixes(t *testing.T) {
	r := script(3, `echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR"; echo bad >&2; `+
		`printf 'port %s\n\nkey %s' $MASTER_PORT $ALLCAST_KEY`)
	r.Env = append(os.Environ(), "RANK=7", "ALLCAST_KEY=00", "ALLCAST_KEY_FILE=/nowhere", "TORCHELASTIC_RUN_ID=x")
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(r.stdout.String(), "\n"), "\n")
	var shared string
	for n := range 3 {
		p := "[" + strconv.Itoa(n) + "] "
		var mine []string
		for _, l := range lines {
			if rest, ok := strings.CutPrefix(l, p); ok {
				mine = append(mine, rest)
			}
		}
		s := strconv.Itoa(n)
		if len(mine) != 4 || mine[0] != s+"/3 "+s+"/3 127.0.0.1" || mine[2] != "" || len(mine[3]) != len("key ")+64 {
			t.Errorf("rank %d: %q", n, mine)
			continue
		}
		port, err := strconv.Atoi(strings.TrimPrefix(mine[1], "port "))
		if err != nil || port < firstPort || port > lastPort {
			t.Errorf("rank %d: %q", n, mine[1])
		}
		if all := mine[1] + mine[3]; shared == "" {
			shared = all
		} else if all != shared {
			t.Errorf("port or key of rank %d differs from that of rank 0", n)
		}
	}
	if len(lines) != 12 {
		t.Errorf("%d lines, want 12", len(lines))
	}
	errs := strings.Fields(r.stderr.String())
	slices.Sort(errs)
	if got := strings.Join(errs, " "); got != "[0] [1] [2] bad bad bad" {
		t.Errorf("stderr %q", r.stderr.String())
	}
}

// A nested job gets its own key, port and ranks. It shares the processors of the rank that starts it.
func TestEnvironmentIsFresh(t *testing.T) {
	environment := func(rank int, c Config) []string {
		of, err := c.environment()
		if err != nil {
			t.Fatal(err)
		}
		return of(rank)
	}
	a := environment(1, Config{Ranks: 2})
	b := environment(2, Config{Ranks: 3, Env: append(a, "X=y", "GROUP_RANK=0")})
	seen := map[string]int{}
	for _, v := range b {
		name, _, _ := strings.Cut(v, "=")
		seen[name]++
		if slices.Contains(a, v) && name != "MASTER_ADDR" && name != "MASTER_PORT" && name != "GOMAXPROCS" {
			t.Errorf("%s has the value of the outer job", name)
		}
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is set %d times", name, n)
		}
	}
	if !slices.Contains(a, fmt.Sprintf("GOMAXPROCS=%d", max(1, runtime.NumCPU()/2))) {
		t.Errorf("GOMAXPROCS is not the share of the processors: %v", a)
	}
	c := environment(0, Config{Ranks: 2, Procs: 2, Env: []string{"GOMAXPROCS=7"}})
	if !slices.Contains(c, "GOMAXPROCS=7") {
		t.Errorf("the caller's GOMAXPROCS was replaced: %v", c)
	}
	if seen["RANK"] != 1 || seen["X"] != 1 || seen["GROUP_RANK"] != 0 {
		t.Errorf("the nested job lacks a variable or inherits GROUP_RANK: %v", seen)
	}
}

// Run returns the first failure, and ends the other ranks and their child processes.
func TestFailureEndsTheRest(t *testing.T) {
	// Rank 1 waits for both others. Its descriptor stays open, so that neither writes to a closed pipe.
	r := script(3, `[ $RANK = 1 ] && { exec 3<>fifo; read x <&3; read y <&3; exit 7; }; `+
		`sleep 1000 & echo $!; echo >fifo; wait`)
	r.Dir = t.TempDir()
	if err := syscall.Mkfifo(r.Dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	var told *RankError
	r.Failed = func(e *RankError) { told = e }
	err := r.run(t)
	var e *RankError
	if !errors.As(err, &e) || e.Rank != 1 || e.Code != 7 || e != told {
		t.Errorf("error %v, reported %v", err, told)
	}
	for l := range strings.Lines(r.stdout.String()) {
		pid, err := strconv.Atoi(strings.Fields(l)[1])
		if err != nil {
			t.Fatal(err)
		}
		ended(t, pid)
	}
}

// Run kills ranks that ignore SIGTERM. A rank that a signal ends has failed.
func TestStubborn(t *testing.T) {
	r := script(2, `trap '' TERM; if [ $RANK = 0 ]; then echo up >fifo; while :; do sleep 1000; done; fi; `+
		`read x <fifo; kill -9 $$`)
	r.Dir = t.TempDir()
	r.Grace = time.Millisecond
	if err := syscall.Mkfifo(r.Dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	var e *RankError
	if err := r.run(t); !errors.As(err, &e) || e.Rank != 1 || e.Code != -1 || e.Signal != syscall.SIGKILL {
		t.Errorf("%v", err)
	}
}

// No child process of a rank survives the job, even if no rank failed.
func TestLeftovers(t *testing.T) {
	r := script(2, `sleep 1000 & echo $!`)
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(r.stdout.String()) {
		pid, err := strconv.Atoi(strings.Fields(l)[1])
		if err != nil {
			t.Fatal(err)
		}
		ended(t, pid)
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		if signal.Ignored(s) {
			continue // inherited as ignored, and a shell cannot trap ignored signals
		}
		signals := make(chan os.Signal, 1)
		r := script(3, `trap 'echo caught; exit 0' INT TERM HUP QUIT USR1; echo ready; `+
			`while :; do sleep 1000 & wait $!; done`)
		r.Signals = signals
		ready := 0
		r.onLine = func(l string) {
			if strings.HasSuffix(l, "ready\n") {
				if ready++; ready == 3 {
					signals <- s
				}
			}
		}
		if err := r.run(t); err != nil || strings.Count(r.stdout.String(), "caught") != 3 {
			t.Errorf("%v: %v\n%s", s, err, r.stdout.String())
		}
	}
}

// A second signal ends the job even if the ranks ignore signals.
func TestSecondSignal(t *testing.T) {
	signals := make(chan os.Signal, 2)
	r := script(1, `trap '' INT TERM; echo ready; while :; do sleep 1000 & wait $!; done`)
	r.Signals, r.Grace = signals, time.Millisecond
	r.onLine = func(string) { signals <- syscall.SIGINT; signals <- syscall.SIGINT }
	var e *RankError
	if err := r.run(t); !errors.As(err, &e) || e.Signal != syscall.SIGKILL {
		t.Errorf("%v", err)
	}
}

func TestContextEndsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := script(2, `echo ready; exec sleep 1000`)
	r.onLine = func(string) { cancel() }
	if err := Run(ctx, r.Config); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, pid := range r.pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still running", pid)
		}
	}
}

func TestCannotStart(t *testing.T) {
	for _, program := range []string{"no-such-program-anywhere", "/", t.TempDir() + "/x"} {
		var e *StartError
		if err := Run(t.Context(), Config{Ranks: 2, Command: []string{program}}); !errors.As(err, &e) {
			t.Errorf("%s: %v", program, err)
		}
	}
	for _, c := range []Config{
		{Ranks: 1},
		{Ranks: 0, Command: []string{"true"}},
		{Ranks: MaxRanks + 1, Command: []string{"true"}},
	} {
		if err := Run(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// The lookup finds the program, but it cannot be started.
	bad := t.TempDir() + "/bad"
	if err := os.WriteFile(bad, []byte("neither a script nor a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	var e *StartError
	if err := Run(t.Context(), Config{Ranks: 2, Command: []string{bad}}); !errors.As(err, &e) || e.Rank != 0 {
		t.Errorf("%v", err)
	}
}

// A launcher that is killed leaves no ranks behind.
func TestKilledLauncher(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a killed process")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 3 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(pids) != 3 {
		t.Fatalf("%d ranks started", len(pids))
	}
	for _, pid := range pids {
		ended(t, pid)
	}
}
