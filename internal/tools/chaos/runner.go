//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// minRanks is the number of ranks below which a new job is started.
const minRanks = 3

// runner runs jobs one after the other, injects faults, and judges the results.
type runner struct {
	cfg     *config
	site    *site
	rnd     *rand.Rand
	start   time.Time
	until   time.Time
	history []string // history of the generation
	sum     summary

	// State of the current generation.
	number   uint64
	ranks    []*process
	events   chan event
	closing  bool
	epochs   map[int][]int // members by epoch, as the first unharmed rank reported them
	aborts   aborts
	harmed   map[string]bool // switches whose aggregator has a fault
	violated error
}

// event is a report of a rank, the end of its process, or a function to call.
type event struct {
	rank   int
	report *report
	end    error  // set if the process has ended
	do     func() // set if there is a function to call
}

// process is the runner's view of a rank.
type process struct {
	rank     int
	cmd      *exec.Cmd
	in       io.WriteCloser
	joined   bool
	exited   bool   // whether the process has ended
	lastKind string // last report about its end

	fault    string    // permanent fault, or ""
	faultAt  time.Time // time of the permanent fault
	doubtful bool      // whether ranks may blame it or not: its link was cut for a time near the timeout
	busy     bool      // whether a fault is in progress
	epoch    int
	last     tally
	blamedAt map[int]time.Time // by blamed rank: time of the first report
}

// unharmed reports whether the rank must succeed.
func (p *process) unharmed() bool { return p.fault == "" && !p.doubtful }

func run(ctx context.Context, cfg *config) (err error) {
	p, err := newSite(ctx, cfg)
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg, site: p, rnd: rand.New(rand.NewPCG(cfg.seed, 0)), start: time.Now(), sum: newSummary()}
	r.until = r.start.Add(cfg.time)
	log.Printf("mode %s, seed %d, %d ranks, timeout %v, %v", cfg.mode, cfg.seed, cfg.hosts, cfg.timeout, describe(p))
	for r.number = 1; time.Now().Before(r.until) && ctx.Err() == nil && err == nil; r.number++ {
		err = r.runGeneration(ctx)
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), p.close(cfg.keep))
	}
	if err == nil && cfg.mode == modeAggregators && r.sum.total.Sums == 0 {
		err = errors.New("aggregators made no sum: all reductions ran point to point")
	}
	keep := cfg.keep || err != nil
	err = errors.Join(err, p.close(keep))
	r.sum.print(os.Stdout, time.Since(r.start))
	if err != nil {
		r.printViolation(err)
		return errors.New("failed")
	}
	if keep {
		log.Printf("the ranks' logs are in %s", p.dir)
	}
	return nil
}

func describe(p *site) string {
	if p.lab == nil {
		return "on loopback: links are not cut"
	}
	return "in a lab of namespaces"
}

// printViolation prints a violation and the history that led to it.
func (r *runner) printViolation(err error) {
	log.Printf("\nhistory of generation %d:", r.number-1)
	for _, line := range r.history {
		log.Print(line)
	}
	log.Printf("\nVIOLATION with seed %d: %v\nthe ranks' logs are in %s", r.cfg.seed, err, r.site.dir)
}

func (r *runner) record(format string, args ...any) {
	r.history = append(r.history, fmt.Sprintf("%9.3fs ", time.Since(r.start).Seconds())+fmt.Sprintf(format, args...))
}

// violation ends the run. The first violation counts.
func (r *runner) violation(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	r.record("VIOLATION: %v", err)
	if r.violated == nil {
		r.violated = err
	}
}

// limit returns the time limit of a call. It covers a verdict, stops of other ranks in between, and the
// transfer of the call's bytes.
func (r *runner) limit() time.Duration {
	const slowest = 8 << 20 // bytes per second, with losses and on a busy machine
	return 5*r.cfg.timeout + 20*time.Second + time.Duration(r.cfg.size/slowest)*time.Second
}

// runGeneration runs a job until too few ranks are left or its time is over.
func (r *runner) runGeneration(ctx context.Context) error {
	r.history, r.ranks, r.closing, r.epochs, r.aborts = nil, nil, false, map[int][]int{}, aborts{}
	r.harmed = map[string]bool{}
	r.events = make(chan event, 1024)
	r.sum.generations++
	defer r.killAll()
	if err := r.launchJob(); err != nil {
		return err
	}
	deadline := time.NewTimer(r.limit() + time.Minute) // time limit of joining
	end := time.NewTimer(r.cfg.timeout + time.Duration(20+r.rnd.IntN(25))*time.Second)
	next := time.NewTimer(time.Hour)
	if left := time.Until(r.until); left < 20*time.Second {
		end.Reset(left)
	}
	joined := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.events:
			r.handle(e)
		case <-next.C:
			switch r.cfg.mode {
			case modeAggregators:
				r.harmAggregator()
			case modeLeave:
				r.orderLeave()
			default:
				r.injectFault()
			}
			next.Reset(r.pause())
		case <-end.C:
			r.finish(deadline)
		case <-deadline.C:
			r.violation("generation %d does not end: %s", r.number, r.pending())
		}
		if !joined && r.all(func(p *process) bool { return p.joined }) {
			joined = true
			if r.cfg.mode == modeFaults || r.cfg.mode == modeLeave || r.cfg.mode == modeAggregators {
				next.Reset(r.pause())
			}
			deadline.Reset(time.Hour)
		}
		if !r.closing && r.count((*process).unharmed) < minRanks {
			r.finish(deadline)
		}
		ended := r.closing && r.all(func(p *process) bool { return p.exited && !p.busy }) && len(r.harmed) == 0
		if ended && r.cfg.mode.cancels() {
			if err := r.aborts.judge(r.hasLeft); err != nil {
				r.violation("%w", err)
			}
		}
		if r.violated != nil {
			r.dump()
			return r.violated
		}
		if ended {
			for _, p := range r.ranks {
				r.sum.total.add(&p.last)
			}
			log.Printf("generation %d ended after %v, %d ranks well; %d calls so far", r.number,
				time.Since(r.start).Round(time.Second), r.count((*process).unharmed), r.sum.total.Calls)
			return nil
		}
	}
}

// dump lets stopped ranks continue, so that they can write their state before they are killed.
func (r *runner) dump() {
	for _, p := range r.ranks {
		if !p.exited {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
}

// launchJob starts the ranks of a job with random settings.
func (r *runner) launchJob() error {
	env, err := r.site.job(r.cfg.hosts)
	if err != nil {
		return err
	}
	var settings []string
	if loss := r.cfg.mode.loss(r.rnd, r.number); loss != "" {
		settings = append(settings, "ALLCAST_FAULT="+loss)
	}
	if r.rnd.IntN(3) == 0 {
		settings = append(settings, "ALLCAST_DATAPATH=auto")
	}
	// An aggregator must see plain values.
	if r.rnd.IntN(4) == 0 && r.cfg.mode != modeAggregators {
		settings = append(settings, "ALLCAST_SECURE=on")
	}
	if r.rnd.IntN(4) == 0 && r.cfg.mode != modeAggregators {
		settings = append(settings, "ALLCAST_INTEGRITY=on")
	}
	settings = append(settings, fmt.Sprint("ALLCAST_TIMEOUT=", r.cfg.timeout),
		fmt.Sprintf("%s=%s %d %d %d %d %d", jobVar, r.cfg.mode, r.cfg.seed, r.number,
			1+r.rnd.IntN(maxTrees), r.cfg.size, r.limit().Nanoseconds()))
	r.record("generation %d: %v", r.number, settings)
	log.Printf("generation %d: %v", r.number, settings)
	for n := range r.cfg.hosts {
		p := &process{rank: n, cmd: r.site.command(n, append(env, settings...)), blamedAt: map[int]time.Time{}}
		r.ranks = append(r.ranks, p)
		if err := r.launch(p); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a process and forwards its reports as events.
func (r *runner) launch(p *process) error {
	file, err := os.Create(filepath.Join(r.site.dir, fmt.Sprintf("stderr-%d-%d", r.number, p.rank)))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	p.cmd.Stderr = file
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	events := r.events
	go func() {
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<22)
		for in.Scan() {
			n := &report{}
			if err := json.Unmarshal(in.Bytes(), n); err != nil {
				n = &report{Kind: kindUnexpected, Text: in.Text()}
			}
			events <- event{rank: p.rank, report: n}
		}
		events <- event{rank: p.rank, end: errors.Join(errEnded, p.cmd.Wait())}
	}()
	return nil
}

var errEnded = errors.New("ended")

// finish ends the generation: it asks the ranks to leave.
func (r *runner) finish(deadline *time.Timer) {
	if r.closing {
		return
	}
	r.closing = true
	r.record("end of generation")
	for _, p := range r.ranks {
		_ = p.in.Close()
	}
	deadline.Reset(3*r.limit() + time.Minute)
}

func (r *runner) all(f func(*process) bool) bool { return r.count(f) == len(r.ranks) }

func (r *runner) count(f func(*process) bool) (n int) {
	for _, p := range r.ranks {
		if f(p) {
			n++
		}
	}
	return n
}

func (r *runner) pending() string {
	var list []string
	for _, p := range r.ranks {
		if !p.exited {
			list = append(list, fmt.Sprintf("rank %d (harm %q, epoch %d)", p.rank, p.fault, p.epoch))
		}
	}
	return strings.Join(list, ", ") + " still run"
}

// killAll kills all ranks and waits for their ends.
func (r *runner) killAll() {
	for _, p := range r.ranks {
		if p.cmd.Process != nil && !p.exited {
			_ = p.cmd.Process.Kill()
		}
	}
	for !r.all(func(p *process) bool { return p.exited || p.cmd.Process == nil }) {
		if e := <-r.events; e.report == nil && e.do == nil {
			r.ranks[e.rank].exited = true
		}
	}
}
