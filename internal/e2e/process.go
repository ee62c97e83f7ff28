// Package e2e starts ranks as processes, for tests of how processes affect each other. Each subpackage is a
// suite of tests.
//
// A test binary is also the program of its ranks: TestMain of a suite calls Main, which plays the role
// that the environment names.
package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// roleVar names the role that a process plays.
const roleVar = "ALLCAST_TEST_AS"

// Main runs a role if this process was started as a rank, and the tests otherwise. It returns the exit
// status of the process.
func Main(m *testing.M, roles map[string]func() int) int {
	name, ok := os.LookupEnv(roleVar)
	if !ok {
		testenv.NoCalibration()
		testenv.PatientRanks()
		return m.Run()
	}
	role, ok := roles[name]
	if !ok {
		_, _ = fmt.Fprintf(os.Stderr, "%s=%s: no such role\n", roleVar, name)
		return 2
	}
	return role()
}

// Say writes a line for the test that started this rank.
func Say(args ...any) { _, _ = fmt.Fprintln(os.Stdout, args...) }

// A Process is a rank.
type Process struct {
	env  []string
	cmd  *exec.Cmd
	out  *bufio.Scanner
	in   io.WriteCloser
	last string
}

// Start starts the ranks of a job on this machine. Each plays the role with env added to its environment.
func Start(t *testing.T, size int, role string, env ...string) []*Process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // rank 0 listens on the port, and retries while another process uses it
	all := make([]*Process, size)
	for rank := range all {
		all[rank] = StartRank(t, rank, size, role, append(env[:len(env):len(env)],
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port))...)
	}
	return all
}

// StartRank starts one rank; env names the address of rank 0. The process ends with the test, and with
// the test's process.
func StartRank(t *testing.T, rank, size int, role string, env ...string) *Process {
	t.Helper()
	return start(t, append(env[:len(env):len(env)],
		roleVar+"="+role, fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size)))
}

// Restart starts the same rank of the same job again.
func (p *Process) Restart(t *testing.T) *Process {
	t.Helper()
	return start(t, p.env)
}

func start(t *testing.T, env []string) *Process {
	t.Helper()
	p := &Process{env: env, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = dieWithParent()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := startOnLastingThread(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Become replaces this process by one that plays another role. The replace function gets the command
// line and returns only with an error.
func Become(role string, replace func(command []string) error) error {
	self, err := os.Executable()
	if err == nil {
		err = os.Setenv(roleVar, role)
	}
	if err == nil {
		err = replace([]string{self})
	}
	return err
}

// Until reads lines of a process up to one with the given prefix. It returns false if the output ends
// first.
func (p *Process) Until(prefix string) bool {
	for p.out.Scan() {
		if p.last = p.out.Text(); strings.HasPrefix(p.last, prefix) {
			return true
		}
	}
	return false
}

// Last returns the last line that Until has read.
func (p *Process) Last() string { return p.last }

// Drain reads the rest of the output and discards it, so that the process never blocks on a full pipe.
func (p *Process) Drain() {
	for p.out.Scan() {
	}
}

// Tell writes a line to the input of a process.
func (p *Process) Tell(line string) error {
	_, err := fmt.Fprintln(p.in, line)
	return err
}

// EndInput closes the input of a process.
func (p *Process) EndInput() { _ = p.in.Close() }

// Signal sends a signal to a process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits until a process exits.
func (p *Process) Wait() error { return p.cmd.Wait() }

// Kill kills a running or stopped process and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
