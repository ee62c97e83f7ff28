//go:build unix

package launch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Hosts describes the machines of RunHosts.
type Hosts struct {
	List  []Host
	SSH   []string // the command in front of the host
	Agent []string // the command that calls Agent: a path, which may be missing on other machines, and arguments
}

// A HostError is a failure of a machine or of the connection to it.
type HostError struct {
	Host string
	Err  error
}

func (e *HostError) Error() string { return fmt.Sprintf("host %s: %v", e.Host, e.Err) }

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }

// remoteJob is a RunHosts under way.
type remoteJob struct {
	job    // cfg, first, stage, timer and breaks
	hosts  Hosts
	remote []*remote
	events chan remoteEvent
}

// remote is the connection to the agent of one machine.
type remote struct {
	Host
	first  int // rank
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr lines
	tail   tail
	hello  agentHello
	begun  bool // the agent has got its job
}

// remoteEvent is a message of an agent, or the end of a connection.
type remoteEvent struct {
	from    *remote
	hello   bool
	failure *RankError
	done    bool // no event of this machine follows
	err     error
}

// RunHosts starts ranks on several machines, as Run does on one. cfg.Ranks and cfg.Part must be zero. No rank starts
// before all machines have answered.
func RunHosts(ctx context.Context, cfg Config, hosts Hosts) error {
	cfg.Ranks = 1 // a Config is of one machine
	if err := cfg.complete(); err != nil {
		return err
	}
	if err := checkHosts(hosts.List); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.Ranks = Slots(hosts.List)
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel kills ssh when this thread ends; see Run
		j := &remoteJob{job: job{cfg: cfg}, hosts: hosts, events: make(chan remoteEvent, len(hosts.List))}
		ended <- j.run(ctx)
	}()
	return <-ended
}

func (j *remoteJob) run(ctx context.Context) error {
	j.timer = time.NewTimer(time.Hour)
	j.timer.Stop()
	left := 0
	rank := 0
	var broken error
	for _, h := range j.hosts.List {
		r := &remote{Host: h, first: rank}
		rank += h.Slots
		if err := j.connect(r); err != nil {
			broken = &HostError{h.Name, err}
			break
		}
		j.remote = append(j.remote, r)
		left++
	}
	if broken != nil {
		j.advance(finished)
	}
	missing := left // agents that have not said hello
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	done := ctx.Done()
	for left > 0 {
		select {
		case ev := <-j.events:
			switch {
			case ev.hello:
				if missing--; missing == 0 && broken == nil && j.stage == running && !j.ended {
					if broken = j.begin(); broken != nil {
						j.advance(asked)
					}
				}
			case ev.failure != nil:
				j.exited(ev.failure)
			case ev.done:
				left--
				_ = ev.from.stdin.Close()
				if ev.err != nil && broken == nil && j.stage < asked {
					broken = &HostError{ev.from.Name, ev.err}
					if _, start := errors.AsType[*StartError](ev.err); !j.cfg.KeepGoing || missing > 0 || start {
						j.advance(asked)
					}
				}
			}
		case s := <-j.cfg.Signals:
			j.forward(s, missing > 0)
		case <-j.timer.C:
			j.advance(j.stage + 1)
		case <-beat.C:
			j.sendAll(fmt.Sprintf("%c\n", lineBeat))
		case <-done:
			done, j.ended = nil, j.first == nil
			j.advance(max(j.stage, asked))
		}
	}
	switch {
	case j.first != nil: // a rank's failure says more than the end of its machine
		return j.first
	case broken != nil:
		return broken
	case j.ended:
		return ctx.Err()
	case j.breaks > 0 && missing > 0:
		return errors.New("interrupted before all hosts answered")
	case j.stage >= asked:
		return errors.New("interrupted")
	}
	return nil
}

// connect starts ssh, and a goroutine that reads what the agent says.
func (j *remoteJob) connect(r *remote) error {
	program := append(slices.Clone(j.hosts.SSH), "--", r.Name, agentCommand(j.hosts.Agent))
	if r.isLocal() {
		program = j.hosts.Agent
	}
	r.cmd = exec.Command(program[0], program[1:]...)
	if r.isLocal() { // other machines need not reach this one as the user's ssh has
		r.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, sshConnection+"=") })
	}
	r.cmd.SysProcAttr = attributes() // Ctrl-C must reach the ranks through this process, not end ssh
	r.cmd.WaitDelay = drain
	r.stderr = newLines(&j.out, io.MultiWriter(j.cfg.Stderr, &r.tail), "["+r.Name+"] ")
	r.cmd.Stderr = &r.stderr
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	go j.read(r, stdout)
	return nil
}

// isLocal reports whether a host is this machine by its own name, for which ssh is not needed.
func (h Host) isLocal() bool {
	name, err := os.Hostname()
	return h.Name == "localhost" || err == nil && h.Name == name
}

// agentCommand is the command line for a login shell. If the agent's path does not exist there, the shell looks for its
// name.
func agentCommand(agent []string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	script := "p=" + quote(agent[0]) + `; [ -x "$p" ] || p=allcast; exec "$p"`
	for _, arg := range agent[1:] {
		script += " " + quote(arg)
	}
	return "exec sh -c " + quote(script)
}

// read passes on what an agent says until its process has ended.
func (j *remoteJob) read(r *remote, stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 64<<10)
	err := j.greet(r, in)
	ended := false
	if err == nil {
		j.events <- remoteEvent{from: r, hello: true}
		ended, err = j.follow(r, in)
	}
	_, _ = io.Copy(io.Discard, in)
	waited := r.cmd.Wait()
	r.stderr.end()
	if !ended && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = r.explain(waited)
	}
	j.events <- remoteEvent{from: r, done: true, err: err}
}

// explain says why a connection ended without a last message.
func (r *remote) explain(waited error) error {
	why := "the connection ended"
	exit, ok := errors.AsType[*exec.ExitError](waited)
	switch {
	case r.hello.Protocol != 0: // it has run
		if waited != nil {
			why += ": " + waited.Error()
		}
	case ok && exit.ExitCode() == 127 || strings.Contains(r.tail.String(), "not found"):
		why = "allcast is not installed there: copy it to the same path, or to a directory of PATH"
	case ok && exit.ExitCode() == 255:
		why = "ssh failed: check that \"ssh " + r.Name + " true\" works without a password"
	case waited != nil:
		why += ": " + waited.Error()
	}
	return errors.New(why)
}

// maxNoise limits the output of login scripts before an agent's first line.
const maxNoise = 1 << 20

func (j *remoteJob) greet(r *remote, in *bufio.Reader) error {
	for noise := 0; noise < maxNoise; {
		line, err := in.ReadSlice('\n')
		if noise += len(line); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		text, ok := bytes.CutPrefix(line, []byte(greeting))
		if !ok {
			continue
		}
		if err := json.Unmarshal(text, &r.hello); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		if r.hello.Protocol != agentProtocol {
			return fmt.Errorf("another version of allcast is installed there (agents have protocol %d, and %d here): "+
				"install the same on all hosts", r.hello.Protocol, agentProtocol)
		}
		return nil
	}
	return errors.New("a login script there prints too much")
}

// follow passes on lines until the last one.
func (j *remoteJob) follow(r *remote, in *bufio.Reader) (ended bool, err error) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return false, err
		}
		if len(line) < 3 {
			return true, errMalformed
		}
		text := string(line[2:])
		switch line[0] {
		case lineOut, lineErr:
			rank, rest, err := rankOf(text)
			if err != nil {
				return true, err
			}
			j.print(rank, rest, line[0] == lineErr)
		case lineFailed:
			failure, err := parseFailure(text)
			if err != nil {
				return true, err
			}
			j.events <- remoteEvent{from: r, failure: failure}
		case lineDone:
			switch text = strings.TrimSuffix(text, "\n"); text {
			case doneOK, doneFailed:
				return true, nil
			}
			if why, ok := strings.CutPrefix(text, doneStart); ok {
				return true, &StartError{Rank: r.first, Err: errors.New("on " + r.Name + ": " + why)}
			}
			return true, errors.New(text)
		default:
			return true, errMalformed
		}
	}
}

// print writes a line. Without a reader of it, the ranks go on.
func (j *remoteJob) print(rank int, text string, stderr bool) {
	to := j.cfg.Stdout
	if stderr {
		to = j.cfg.Stderr
	}
	j.out.Lock()
	defer j.out.Unlock()
	_, _ = io.WriteString(to, j.cfg.Prefix(rank, stderr)+text)
}

// begin sends the job to all agents.
func (j *remoteJob) begin() error {
	addr, err := j.rootAddress()
	if err != nil {
		return err
	}
	dir := j.cfg.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	key := newKey()
	for _, r := range j.remote {
		text, err := json.Marshal(agentJob{
			Part:  Part{First: r.first, Size: j.cfg.Ranks, Addr: addr, Key: key},
			Ranks: r.Slots, Command: j.cfg.Command, Self: j.hosts.Agent[0], Env: j.cfg.Env, Dir: dir,
			Procs: j.cfg.Procs, KeepGoing: j.cfg.KeepGoing,
		})
		if err != nil {
			return err
		}
		r.begun = true
		r.send(string(text) + "\n")
	}
	return nil
}

// rootAddress is the address at which rank 0 will listen: that by which ssh has reached its machine, or else its name.
func (j *remoteJob) rootAddress() (string, error) {
	first := j.remote[0]
	addr := first.address()
	if a, err := netip.ParseAddr(first.hello.Addr); err == nil && !a.IsLoopback() {
		addr = a.Unmap().String()
	}
	if a, err := netip.ParseAddr(addr); len(j.remote) > 1 && (addr == "localhost" || err == nil && a.IsLoopback()) {
		return "", &HostError{first.Name, errors.New(
			"it has rank 0, and other hosts cannot reach it by that name: give a name or an address that they can reach")}
	}
	return net.JoinHostPort(addr, strconv.Itoa(first.hello.Port)), nil
}

// send writes a message. An agent that is gone shows at the reading side.
func (r *remote) send(line string) { _, _ = io.WriteString(r.stdin, line) }

// sendAll writes a message to all agents that have a job.
func (j *remoteJob) sendAll(line string) {
	for _, r := range j.remote {
		if r.begun {
			r.send(line)
		}
	}
}

// advance enters a stage; see job.advance. Agents end their ranks themselves, so it only has to wait a little longer.
func (j *remoteJob) advance(to stage) {
	j.stage = to
	switch to {
	case noticed:
		j.timer.Reset(j.cfg.Notice)
	case asked:
		for _, r := range j.remote {
			if r.begun {
				r.send(fmt.Sprintf("%c\n", lineEnd))
			} else {
				_ = r.stdin.Close()
			}
		}
		j.timer.Reset(j.cfg.Grace + 2*time.Second)
	case finished:
		for _, r := range j.remote {
			_ = r.stdin.Close()
			_ = r.cmd.Process.Kill()
		}
	}
}

func (j *remoteJob) exited(e *RankError) {
	if j.ended || j.first != nil && !j.cfg.KeepGoing {
		return
	}
	if j.first == nil {
		j.first = e
	}
	if j.cfg.Failed != nil {
		j.cfg.Failed(e)
	}
	if j.stage == running && !j.cfg.KeepGoing {
		j.advance(noticed)
	}
}

// forward passes a signal on to all agents. Before the ranks run, a request to stop ends the job.
func (j *remoteJob) forward(s os.Signal, starting bool) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	stops := slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP}, sig)
	if !starting {
		j.sendAll(fmt.Sprintf("%c %d\n", lineSignal, int(sig)))
	}
	switch {
	case stops:
		if j.breaks++; (starting || j.breaks > 1) && j.stage < asked {
			j.advance(asked)
		}
	case sig == syscall.SIGTSTP && !starting:
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// tail keeps the end of a stream.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
