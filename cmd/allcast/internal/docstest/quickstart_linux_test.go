package docstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/sshlab"
	"github.com/allcast/allcast/internal/testenv"
)

const repository = "../../../.." // from this directory

// step is a command of a page.
type step struct {
	node    string // node1 or node2
	command string
}

// steps reads the commands of a page, which follow a prompt with the name of the machine.
func steps(t *testing.T, page string) (list []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatal(err)
	}
	prompt := regexp.MustCompile(`(?m)^ {4,}(node[12])\$ (.*)$`)
	for _, m := range prompt.FindAllStringSubmatch(string(text), -1) {
		list = append(list, step{m[1], m[2]})
	}
	return list
}

// machine is a shell on a host that has its own /root, /usr/local/bin and /etc/hosts.
type machine struct {
	in  io.Writer
	out *bufio.Reader
}

// run runs a command and returns its output.
func (m *machine) run(t *testing.T, command string) (output string, status string) {
	t.Helper()
	// Braces keep the directory and the variables; ssh must not read the commands that follow.
	const mark = "-- status of the last command: "
	if _, err := fmt.Fprintf(m.in, "{ %s\n} </dev/null\nstatus=$?; echo; echo '%s'$status\n", command, mark); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := m.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: the shell ended: %v\n%s", command, err, output)
		}
		if rest, ok := strings.CutPrefix(line, mark); ok {
			return output, strings.TrimSpace(rest)
		}
		output += line
	}
}

// private is the script that gives a machine its own directories, and then becomes another program.
const private = `set -e
mkdir -p "$0/root/go" "$0/root/.cache" "$0/bin"
mount --bind /root/go "$0/root/go"
mount --bind /root/.cache "$0/root/.cache"
mount --bind "$0/bin" /usr/local/bin
mount --bind "$0/../hosts" /etc/hosts
mount --rbind "$0/root" /root
cd /root
exec "$@"`

// Every command of the tutorial works on two machines.
func TestQuickstart(t *testing.T) {
	testenv.NeedVar(t, networkVar, "\"make test-network\" runs it")
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil || home != "/root" {
		t.Skipf("needs the home directory /root: %s, %v", home, err)
	}
	dir := func(l *sshlab.Lab, host int) string { return filepath.Join(l.Dir, fmt.Sprint("node", host+1)) }
	l := sshlab.StartIn(t, 2, func(l *sshlab.Lab, host int) []string {
		prepare(t, l, dir(l, host), root)
		return []string{"unshare", "-m", "sh", "-c", private, dir(l, host)}
	})
	machines := map[string]*machine{}
	for host := range 2 {
		cmd := l.Exec(t, fmt.Sprint("host", host), "unshare", "-m", "sh", "-c", private, dir(l, host), "bash")
		cmd.Env = append(environment(), "ALLCAST_IFNAME=eth0", "ALLCAST_GROUPS="+l.Groups(),
			"PATH=/usr/local/bin:"+l.Dir+"/tools:"+os.Getenv("PATH"))
		machines[fmt.Sprint("node", host+1)] = shell(t, cmd)
	}
	t.Cleanup(func() { _ = os.Remove("/tmp/params") }) // the machines share /tmp
	list := steps(t, "docs/quickstart.md")
	if len(list) < 20 {
		t.Fatalf("only %d commands", len(list))
	}
	for _, s := range list {
		start := time.Now()
		output, status := machines[s.node].run(t, s.command)
		t.Logf("%s$ %s (%.1f s)\n%s", s.node, s.command, time.Since(start).Seconds(), output)
		if status != "0" {
			t.Fatalf("%s$ %s: status %s", s.node, s.command, status)
		}
		if strings.Contains(s.command, " perf ") && !strings.HasSuffix(s.command, "&") && !strings.Contains(output, "mcast") {
			t.Errorf("no result: %s", output)
		}
	}
}

// environment is that of a login, without the variables of the test.
func environment() (env []string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "PATH" && !strings.HasPrefix(name, "ALLCAST_") && name != "TMPDIR" {
			env = append(env, v)
		}
	}
	return env
}

// prepare writes the files of a machine: its ssh, the names of both, and where to find the repository.
func prepare(t *testing.T, l *sshlab.Lab, dir, root string) {
	t.Helper()
	ssh := filepath.Join(dir, "root/.ssh")
	tools := filepath.Join(l.Dir, "tools")
	for _, d := range []string{ssh, tools} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(l.Config)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(ssh, "config"):  string(config),
		filepath.Join(l.Dir, "hosts"): fmt.Sprintf("127.0.0.1 localhost\n%s node1\n%s node2\n", l.Addr(0), l.Addr(1)),
		filepath.Join(tools, "sudo"):  "#!/bin/sh\nexec \"$@\"\n", // the test is root
		dir + "/root/.gitconfig": fmt.Sprintf("[url %q]\n\tinsteadOf = https://github.com/allcast/allcast\n"+
			"[safe]\n\tdirectory = *\n", root),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(tools, "sudo"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func shell(t *testing.T, cmd *exec.Cmd) *machine {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.Close()
	})
	return &machine{in, bufio.NewReader(r)}
}
