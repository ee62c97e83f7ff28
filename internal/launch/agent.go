//go:build unix

package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/settings"
)

// Agent runs the ranks of this machine for a RunHosts on another one, which is at the other end of in and out. It ends
// the ranks when in ends. It changes the working directory and PATH of this process.
func Agent(in io.Reader, out io.Writer) error {
	// Without a reader, writes must not end this process before its ranks. Ranks would inherit a signal that is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := &agent{out: out}
	hello := agentHello{Protocol: agentProtocol, Addr: sshAddress()}
	var err error
	if hello.Port, err = freePort(""); err != nil {
		return err
	}
	text, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	a.line("\n" + greeting + string(text) + "\n") // the output of a login script may lack its last line feed
	r := bufio.NewReader(in)
	var job agentJob
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil //nolint:nilerr // another machine has failed, and the launcher has left
	}
	if err := json.Unmarshal(line, &job); err != nil {
		return fmt.Errorf("a job: %w", err)
	}
	a.line(fmt.Sprintf("%c %s\n", lineDone, a.run(r, job)))
	return nil
}

const sshConnection = "SSH_CONNECTION"

// sshAddress is the address of this machine on the connection of ssh.
func sshAddress() string {
	if f := strings.Fields(settings.Process.Get(sshConnection)); len(f) == 4 {
		return f[2]
	}
	return ""
}

// agent writes to the launcher.
type agent struct {
	mu  sync.Mutex
	out io.Writer
}

// Write implements io.Writer for lines of ranks, each of which begins with its kind and rank.
func (a *agent) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Write(b)
}

func (a *agent) line(s string) {
	_, _ = io.WriteString(a, s) // without a launcher, in ends
}

// run runs the ranks, and returns how they ended.
func (a *agent) run(in *bufio.Reader, job agentJob) string {
	if err := os.Chdir(job.Dir); err != nil {
		return doneStart + fmt.Sprintf("the working directory: %v; start from a directory that all hosts have", err)
	}
	if job.Command[0] == job.Self {
		exe, err := os.Executable()
		if err != nil {
			return doneStart + err.Error()
		}
		job.Command[0] = exe
	}
	for _, v := range job.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			_ = os.Setenv("PATH", path) // by which Run finds the program
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 16)
	go receive(in, signals, cancel)
	defer Adopt()()
	err := Run(ctx, Config{
		Ranks: job.Ranks, Command: job.Command, Env: mergeEnv(os.Environ(), job.Env, job.Dir), Procs: job.Procs,
		Part: &job.Part, KeepGoing: job.KeepGoing, Stdout: a, Stderr: a, Signals: signals,
		Prefix: func(rank int, stderr bool) string {
			if stderr {
				return fmt.Sprintf("%c %d ", lineErr, rank)
			}
			return fmt.Sprintf("%c %d ", lineOut, rank)
		},
		Failed: func(e *RankError) { a.line(failureLine(e)) },
	})
	if _, ok := errors.AsType[*RankError](err); ok {
		return doneFailed
	}
	if start, ok := errors.AsType[*StartError](err); ok {
		err = start.Err
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; it needs the same path on all hosts", err)
		}
		return doneStart + err.Error()
	}
	if err != nil {
		return err.Error()
	}
	return doneOK
}

// receive reads the launcher's messages. It ends the job when they end, or stay out for too long.
func receive(in *bufio.Reader, signals chan<- os.Signal, end func()) {
	defer end()
	silence := time.AfterFunc(beatLimit, end)
	defer silence.Stop()
	for {
		line, err := in.ReadString('\n')
		if err != nil || line[0] == lineEnd {
			return
		}
		silence.Reset(beatLimit)
		var number int
		if _, err := fmt.Sscanf(line, string(lineSignal)+" %d", &number); err == nil {
			if syscall.Signal(number) == syscall.SIGTSTP {
				silence.Stop() // until the launcher continues
			}
			signals <- syscall.Signal(number)
		}
	}
}

// ownVariables describe a machine or a login, so that a rank has those of its own machine. Names that end in an
// underscore are prefixes.
var ownVariables = []string{
	"HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "HOSTNAME", "TMPDIR", "MAIL", "SHLVL", "_", "TERM", "DISPLAY",
	"LS_COLORS", "SSH_", "XDG_", "DBUS_", "SUDO_", "KRB5CCNAME", "INVOCATION_ID", "JOURNAL_STREAM",
}

func isOwn(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.ContainsFunc(ownVariables, func(own string) bool {
		return name == own || len(own) > 1 && strings.HasSuffix(own, "_") && strings.HasPrefix(name, own)
	})
}

// mergeEnv is the environment of the launcher, except for variables that describe a machine, and the working directory.
func mergeEnv(own, given []string, dir string) []string {
	env := slices.DeleteFunc(slices.Clone(own), func(v string) bool {
		return !isOwn(v) || strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "OLDPWD=")
	})
	return append(append(env, slices.DeleteFunc(slices.Clone(given), isOwn)...), "PWD="+dir)
}
