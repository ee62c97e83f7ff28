// Package sshlab gives tests a network of hosts with ssh: a lab whose hosts run sshd.
package sshlab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/lab"
)

// Lab is a lab with sshd on each host. The names of hosts are h0, h1 and so on, in the configuration of ssh only.
type Lab struct {
	Name   string
	Dir    string // for files of the test, removed at its end
	Config string // of ssh
	Hosts  int

	plan *lab.Plan
}

// Start builds a star with some hosts and starts sshd on each. The test's table of commands must have "lab" and
// "agent". It skips the test without root or sshd.
func Start(t *testing.T, hosts int, flags ...string) *Lab {
	t.Helper()
	return StartIn(t, hosts, nil, flags...)
}

// StartIn is Start, with a command in front of each host's sshd; nil for none.
func StartIn(t *testing.T, hosts int, in func(l *Lab, host int) []string, flags ...string) *Lab {
	t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if os.Geteuid() != 0 || err != nil {
		t.Skipf("needs root and sshd (Debian: openssh-server): %v", err)
	}
	if err := lab.Usable(); err != nil {
		t.Skipf("no lab here: %v", err)
	}
	l := &Lab{Name: fmt.Sprintf("s%dx%d", os.Getpid(), len(t.Name())), Dir: t.TempDir(), Hosts: hosts}
	l.Config = filepath.Join(l.Dir, "ssh_config")
	l.command(t, append([]string{"lab", "up", "--topology", fmt.Sprint("star:", hosts), "--name", l.Name}, flags...)...)
	t.Cleanup(func() { l.command(t, "lab", "down", "--name", l.Name) })
	up, err := lab.Attach(l.Name)
	if err != nil {
		t.Fatal(err)
	}
	l.plan = up.Plan
	l.keys(t)
	for h := range hosts {
		command := []string{sshd, "-D", "-e", "-f", filepath.Join(l.Dir, "sshd_config")}
		if in != nil {
			command = append(in(l, h), command...)
		}
		l.daemon(t, h, command)
	}
	return l
}

// Addr is the address of a host.
func (l *Lab) Addr(host int) string { return l.plan.HostAddr(host).String() }

// Groups is the value of ALLCAST_GROUPS in the lab.
func (l *Lab) Groups() string {
	var list []string
	for _, g := range l.plan.Groups {
		list = append(list, g.String())
	}
	return strings.Join(list, ",")
}

// SSH is the command that reaches the hosts by their names.
func (l *Lab) SSH() string { return "ssh -F " + l.Config }

// Exec prepares a program on a host or, by its name, on a switch.
func (l *Lab) Exec(t *testing.T, node string, program ...string) *exec.Cmd {
	t.Helper()
	cmd := clitest.Process(t)
	args := append([]string{"ip", "netns", "exec", l.Name + "-" + node}, program...)
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Skipf("needs ip (Debian: iproute2): %v", err)
	}
	cmd.Path, cmd.Args, cmd.Dir = path, args, l.Dir
	return cmd
}

// Command prepares the command on a host, with the variables that name the multicast groups of the lab.
func (l *Lab) Command(t *testing.T, node string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := clitest.Process(t, append([]string{"lab", "exec", "--name", l.Name, node, "--", Self(t)}, args...)...)
	cmd.Dir = l.Dir
	return cmd
}

// Must runs a program that has to succeed, and returns its output.
func Must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	o := clitest.Finish(t, cmd)
	if o.Status != 0 {
		t.Fatalf("%q: status %d\n%s%s", cmd.Args, o.Status, o.Stdout, o.Stderr)
	}
	return o.Stdout
}

// Self is the path of the test binary, which behaves as the command.
func Self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func (l *Lab) command(t *testing.T, args ...string) {
	t.Helper()
	// The context of a test has ended when its cleanup runs.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), Self(t), args...)
	cmd.Env = clitest.Process(t).Env
	Must(t, cmd)
}

func (l *Lab) keys(t *testing.T) {
	t.Helper()
	for _, name := range []string{"host", "user"} {
		out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(l.Dir, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := ""
	for h := range l.Hosts {
		config += fmt.Sprintf("Host h%d node%d %s\n  HostName %[3]s\n", h, h+1, l.Addr(h))
	}
	config += fmt.Sprintf("Host *\n  User root\n  Port 22\n  IdentityFile %s\n  IdentitiesOnly yes\n"+
		"  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n", filepath.Join(l.Dir, "user"))
	server := fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"+
		"PasswordAuthentication no\nPidFile none\nSubsystem sftp internal-sftp\nMaxStartups 100\n"+
		"SetEnv ALLCAST_TEST_COMMAND=1 GORACE=atexit_sleep_ms=0\n",
		filepath.Join(l.Dir, "host"), filepath.Join(l.Dir, "user.pub"))
	for name, text := range map[string]string{"ssh_config": config, "sshd_config": server} {
		if err := os.WriteFile(filepath.Join(l.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// daemon starts sshd on a host, and waits until it listens.
func (l *Lab) daemon(t *testing.T, host int, command []string) {
	t.Helper()
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd needs it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "ip",
		append([]string{"netns", "exec", fmt.Sprintf("%s-host%d", l.Name, host)}, command...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	listens, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "listening on 0.0.0.0") {
				close(listens)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		<-ended
		if t.Failed() {
			t.Logf("sshd of host %d:\n%s", host, log.String())
		}
	})
	select {
	case <-listens:
	case <-ended:
		t.Fatal("sshd has ended")
	}
}
