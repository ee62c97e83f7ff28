package lab

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// listenTime is the time that an aggregator may take until it listens.
	listenTime = 30 * time.Second
	// Limits of an aggregator. They allow long windows: results may wait behind a full queue of multicast, and ranks
	// should be able to go on meanwhile.
	aggregatorBuffer, aggregatorMemory = "256M", "512M"
	// listenWord is in the line that an aggregator prints when it listens.
	listenWord = "listening"
)

// writeSiteKey writes a new site key, which only root can read.
func writeSiteKey(name string) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return os.WriteFile(keyPath(name), []byte(hex.EncodeToString(key)+"\n"), 0o600)
}

// startAggregators starts all aggregators of a lab and waits until they listen.
func (p *Plan) startAggregators(ctx context.Context, command []string) ([]process, error) {
	all := make([]process, len(p.Aggregators))
	errs := make([]error, len(p.Aggregators))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = p.startAggregator(ctx, i, command) })
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// startAggregator starts an aggregator inside its switch and waits until it listens. The kernel kills it when
// this process ends.
func (p *Plan) startAggregator(ctx context.Context, i int, command []string) (process, error) {
	a := p.Aggregators[i]
	failed := func(err error) (process, error) {
		return process{}, fmt.Errorf("the aggregator in %s: %w", a.Switch.Name, err)
	}
	if len(command) == 0 {
		return failed(errors.New("no command to run"))
	}
	r := &aggregatorRun{listens: make(chan struct{}), ended: make(chan struct{})}
	r.cmd = exec.Command(command[0], append(command[1:len(command):len(command)], p.aggregatorArgs(a)...)...)
	share := max(1, runtime.NumCPU()/len(p.Aggregators)) // as ranks have, see package launch
	r.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(share))
	// Outside the terminal's process group: the lab handles Ctrl-C.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := r.start(p.Namespace(a.Switch), p.logPath(a)); err != nil {
		return failed(err)
	}
	id, err := findProcess(r.cmd.Process.Pid)
	if err != nil {
		_ = r.cmd.Process.Kill() // it has most likely ended, and its last line says why
		<-r.ended
		return failed(fmt.Errorf("%s (%w)", r.last, err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listenTime, fmt.Errorf("it does not listen after %v", listenTime))
	defer cancel()
	select {
	case <-r.listens:
		return id, nil
	case <-r.ended:
		return failed(errors.New(r.last))
	case <-ctx.Done():
		return failed(errors.Join(context.Cause(ctx), id.end(unix.SIGKILL)))
	}
}

func (p *Plan) aggregatorArgs(a Aggregator) []string {
	args := []string{
		"--listen", a.Addr.String(), "--site-key-file", keyPath(p.Config.Name),
		"--buffer", aggregatorBuffer, "--job-memory", aggregatorMemory,
	}
	if a.Parent >= 0 {
		args = append(args, "--parent", p.Aggregators[a.Parent].Addr.String())
	}
	return args
}

// aggregatorRun is the process of an aggregator, as its parent sees it.
type aggregatorRun struct {
	cmd     *exec.Cmd
	listens chan struct{} // closed when it listens
	ended   chan struct{} // closed when it has ended
	last    string        // last line of the log; valid once ended is closed
}

// start starts the process in a namespace. Its output goes to a log.
func (r *aggregatorRun) start(namespace, path string) error {
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	r.cmd.Stdout, r.cmd.Stderr = in, in
	done := make(chan error, 1)
	lastingThread() <- func() {
		done <- visit(func() error {
			if err := enterNamespace(namespace); err != nil {
				return err
			}
			return r.cmd.Start()
		})
	}
	err = <-done
	_ = in.Close() // the process has it
	if err != nil {
		return errors.Join(err, out.Close(), log.Close())
	}
	go r.copy(out, log)
	return nil
}

// copy copies the output of the process to its log until the process ends.
func (r *aggregatorRun) copy(out, log *os.File) {
	lines := bufio.NewReader(out)
	listens := false
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			_, _ = log.WriteString(line) // best effort: a full disk must not end a job
			r.last = strings.TrimSpace(line)
		}
		if !listens && strings.Contains(line, listenWord) {
			listens = true
			close(r.listens)
		}
		if err != nil {
			break
		}
	}
	err := r.cmd.Wait()
	if r.last == "" || listens {
		r.last = fmt.Sprint("it has ended: ", r.cmd.ProcessState)
	}
	if err != nil || listens {
		_, _ = fmt.Fprintf(log, "the aggregator has ended: %v\n", r.cmd.ProcessState)
	}
	_, _ = log.Close(), out.Close()
	close(r.ended)
}

// lastingThread returns the work queue of a thread that lives as long as this process. The kernel kills a
// process with Pdeathsig when the thread that started it ends.
var lastingThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// AggregatorPID returns the process of the aggregator in a switch, as the lab last started it.
func (l *Lab) AggregatorPID(name string) (int, error) {
	i, err := l.Plan.aggregator(name)
	if err != nil {
		return 0, err
	}
	return l.state.Aggregators[i].PID, nil
}

// SignalAggregator sends a signal to the aggregator in a switch. After SIGKILL, it waits until the aggregator has
// ended.
func (l *Lab) SignalAggregator(name string, sig syscall.Signal) error {
	i, err := l.Plan.aggregator(name)
	if err != nil {
		return err
	}
	p := l.state.Aggregators[i]
	switch {
	case !p.alive():
		return fmt.Errorf("the aggregator in %s has ended", name)
	case sig == unix.SIGKILL:
		return p.end(sig)
	}
	return annotate(unix.Kill(p.PID, sig), "the aggregator in %s", name)
}

// RestartAggregator ends the aggregator in a switch, if it still runs, and starts it again. The new one ends
// with the lab or with this process.
func (l *Lab) RestartAggregator(ctx context.Context, name string) error {
	i, err := l.Plan.aggregator(name)
	if err != nil {
		return err
	}
	if err := l.state.Aggregators[i].end(unix.SIGKILL); err != nil {
		return err
	}
	p, err := l.Plan.startAggregator(ctx, i, l.state.Aggregator)
	if err != nil {
		return err
	}
	l.state.Aggregators[i] = p
	return l.state.write()
}
