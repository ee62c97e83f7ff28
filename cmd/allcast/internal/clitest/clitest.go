// Package clitest runs subcommands in tests, inside the test's process or as processes of their own.
package clitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// asCommand makes the test binary behave as the command, so that tests can start ranks as processes.
const asCommand = "ALLCAST_TEST_COMMAND"

// Main is the TestMain of a package whose tests start processes. The table holds the subcommands that they need.
func Main(m *testing.M, table cli.CommandTable) {
	if os.Getenv(asCommand) != "" {
		os.Exit(cli.Run(table, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Outcome is the result of one run of the command.
type Outcome struct {
	Status         int
	Stdout, Stderr string
}

// Run runs the command inside the test's process.
func Run(table cli.CommandTable, args ...string) Outcome {
	var stdout, stderr bytes.Buffer
	status := cli.Run(table, args, &stdout, &stderr)
	return Outcome{status, stdout.String(), stderr.String()}
}

// Process prepares the command as a process.
func Process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	for _, v := range os.Environ() {
		// If a launcher started the test, the process must not take itself for one of its ranks.
		if name, _, _ := strings.Cut(v, "="); name != "RANK" && name != "WORLD_SIZE" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// With the race detector, a process would wait one second for reports when it ends.
	cmd.Env = append(cmd.Env, asCommand+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Finish runs a process to its end.
func Finish(t *testing.T, cmd *exec.Cmd) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Objects parses stdout as JSON lines. Anything else on stdout fails the test, and so does an object that docs/json.md
// does not describe.
func (o Outcome) Objects(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(o.Stdout) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("stdout has a line that is not a JSON object: %q: %v", line, err)
		}
		if err := CheckDocumented("", v); err != nil {
			t.Errorf("%s\nis in no section of docs/json.md:\n%v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// JSON runs the command as a process that must succeed, and returns its JSON lines.
func JSON(t *testing.T, args string, env ...string) []map[string]any {
	t.Helper()
	cmd := Process(t, strings.Fields(args)...)
	cmd.Env = append(cmd.Env, env...)
	o := Finish(t, cmd)
	if o.Status != cli.StatusOK {
		t.Fatalf("allcast %s: status %d\n%s%s", args, o.Status, o.Stdout, o.Stderr)
	}
	return o.Objects(t)
}

// Join runs ranks in goroutines, which start faster than processes, and returns their errors.
func Join(t *testing.T, ranks int, o allcast.Options, do func(*allcast.Comm) error) []error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Size, o.Addr = ranks, l.Addr().String()
	_ = l.Close()
	var (
		wg   sync.WaitGroup
		errs = make([]error, ranks)
	)
	for r := range ranks {
		wg.Go(func() {
			o := o
			o.Rank = r
			comm, err := allcast.Join(t.Context(), o)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(do(comm), comm.Close())
		})
	}
	wg.Wait()
	return errs
}

// NeedBPF skips the test if the kernel does not accept a program at this hook of the loopback interface.
func NeedBPF(t *testing.T, hook bpf.Hook) {
	t.Helper()
	if err := tryBPF(hook); err != nil {
		t.Skipf("no eBPF here: %v", err)
	}
}

func tryBPF(hook bpf.Hook) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	o, err := bpf.New(bpf.Config{Hook: hook, Interface: lo, Chunk: ip.MaxPayload(lo.MTU, false)})
	if err != nil {
		return err
	}
	return o.Close()
}

// Unprivileged prepares a process without any capability.
func Unprivileged(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		if tryBPF(bpf.SockFilter) == nil {
			t.Skip("not root, but with CAP_BPF")
		}
		return Process(t, args...)
	}
	return Capable(t, "", args...)
}

// Capable prepares a process with only these capabilities, such as "+bpf,+perfmon". It needs root.
func Capable(t *testing.T, caps string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to set the capabilities of a process")
	}
	cmd := Process(t, args...)
	caps = strings.TrimSuffix("-all,"+caps, ",")
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skipf("cannot drop the privileges of root: %v", err)
	}
	// Other users may not be able to read the directory of the test binary.
	dir, err := os.MkdirTemp("", "allcast") //nolint:usetesting // only its owner can read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "allcast")
	if err := os.WriteFile(exe, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	less := exec.CommandContext(t.Context(), setpriv, append([]string{
		"--reuid", "65534", "--regid", "65534", "--clear-groups",
		"--bounding-set=" + caps, "--inh-caps=" + caps, "--ambient-caps=" + caps, exe,
	}, args...)...)
	less.Env = append(cmd.Env, "XDG_RUNTIME_DIR=", "TMPDIR=/tmp")
	less.Dir = dir
	return less
}

// Lines reads the standard output of a process.
type Lines struct{ s *bufio.Scanner }

// StartLines starts a process, which ends with the test at the latest.
func StartLines(t *testing.T, cmd *exec.Cmd) Lines {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { guard.Stop(); _ = cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out) })
	return Lines{bufio.NewScanner(out)}
}

// Until skips lines up to one that contains the text.
func (l Lines) Until(t *testing.T, text string) {
	t.Helper()
	for l.s.Scan() {
		if strings.Contains(l.s.Text(), text) {
			return
		}
	}
	t.Fatalf("it ended without %q: %v", text, l.s.Err())
}

// Next skips lines up to one that contains the text, and returns it.
func (l Lines) Next(t *testing.T, text string) string {
	t.Helper()
	l.Until(t, text)
	return l.s.Text()
}

// Rest returns all further lines.
func (l Lines) Rest() string {
	var all strings.Builder
	for l.s.Scan() {
		all.WriteString(l.s.Text() + "\n")
	}
	return all.String()
}

// Children lists the child processes of a process, on Linux.
func Children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for _, f := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}
