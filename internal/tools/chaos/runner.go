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
	"slices"
	"strings"
	"syscall"
	"time"
)

// fewest ranks that a job goes on with: with less, a new one is started.
const fewest = 3

// runner starts jobs one after the other, does things to them, and judges.
type runner struct {
	cfg   *config
	place *place
	rnd   *rand.Rand
	start time.Time
	until time.Time
	past  []string // what happened, in order
	sum   summary

	// Of the generation that runs.
	nth      uint64
	ranks    []*process
	events   chan event
	closing  bool
	epochs   map[int][]int // members, as the first unharmed rank told
	aborts   aborts
	violated error
}

// event is a note of a rank, its end, or something to do.
type event struct {
	rank int
	note *note
	end  error  // with note nil: the process has ended
	do   func() // with both nil
}

// process is a rank as the runner sees it.
type process struct {
	rank   int
	cmd    *exec.Cmd
	in     io.WriteCloser
	joined bool
	gone   bool   // the process has ended
	said   string // the last that it said of its end

	harm   string    // what was done to it for good, "": nothing
	harmAt time.Time // since when
	doubt  bool      // it may be named, but need not: it was cut off for a time near the timeout
	busy   bool      // something is being done to it
	epoch  int
	last   tally
	lostAt map[int]time.Time // when it first named whom
}

// unharmed says whether a rank must do well.
func (p *process) unharmed() bool { return p.harm == "" && !p.doubt }

func run(ctx context.Context, cfg *config) (err error) {
	p, err := newPlace(ctx, cfg)
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg, place: p, rnd: rand.New(rand.NewPCG(cfg.seed, 0)), start: time.Now(), sum: newSummary()}
	r.until = r.start.Add(cfg.time)
	log.Printf("mode %s, seed %d, %d ranks, timeout %v, %v", cfg.mode, cfg.seed, cfg.hosts, cfg.timeout, where(p))
	for r.nth = 1; time.Now().Before(r.until) && ctx.Err() == nil && err == nil; r.nth++ {
		err = r.generation(ctx)
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), p.close(cfg.keep))
	}
	keep := cfg.keep || err != nil
	err = errors.Join(err, p.close(keep))
	r.sum.print(os.Stdout, time.Since(r.start))
	if err != nil {
		r.tell(err)
		return errors.New("failed")
	}
	if keep {
		log.Printf("what ranks wrote is in %s", p.dir)
	}
	return nil
}

func where(p *place) string {
	if p.lab == nil {
		return "on loopback: links are not cut"
	}
	return "in a lab of namespaces"
}

// tell prints a violation with all that led to it.
func (r *runner) tell(err error) {
	log.Printf("\nhistory of generation %d:", r.nth-1)
	for _, line := range r.past {
		log.Print(line)
	}
	log.Printf("\nVIOLATION with seed %d: %v\nwhat ranks wrote is in %s", r.cfg.seed, err, r.place.dir)
}

func (r *runner) note(format string, args ...any) {
	r.past = append(r.past, fmt.Sprintf("%9.3fs ", time.Since(r.start).Seconds())+fmt.Sprintf(format, args...))
}

// violation ends the run; the first one counts.
func (r *runner) violation(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	r.note("VIOLATION: %v", err)
	if r.violated == nil {
		r.violated = err
	}
}

// limit is how long a call may take at most: a verdict, other ranks that are stopped for a while in
// between, and the time that its bytes take.
func (r *runner) limit() time.Duration {
	const slowest = 8 << 20 // bytes per second, with losses and on a busy machine
	return 5*r.cfg.timeout + 20*time.Second + time.Duration(r.cfg.size/slowest)*time.Second
}

// generation runs a job until too few are left of it, or it had its time.
func (r *runner) generation(ctx context.Context) error {
	r.past, r.ranks, r.closing, r.epochs, r.aborts = nil, nil, false, map[int][]int{}, aborts{}
	r.events = make(chan event, 1024)
	r.sum.generations++
	defer r.kill()
	if err := r.begin(); err != nil {
		return err
	}
	deadline := time.NewTimer(r.limit() + time.Minute) // to join
	end := time.NewTimer(time.Duration(20+r.rnd.IntN(25)) * time.Second)
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
			r.strike()
			next.Reset(r.pause())
		case <-end.C:
			r.finish(deadline)
		case <-deadline.C:
			r.violation("generation %d does not end: %s", r.nth, r.pending())
		}
		if !joined && r.all(func(p *process) bool { return p.joined }) {
			joined = true
			if r.cfg.mode == modeFaults {
				next.Reset(r.pause())
			}
			deadline.Reset(time.Hour)
		}
		if !r.closing && r.count((*process).unharmed) < fewest {
			r.finish(deadline)
		}
		ended := r.closing && r.all(func(p *process) bool { return p.gone && !p.busy })
		if ended && r.cfg.mode == modeCancel {
			if err := r.aborts.judge(); err != nil {
				r.violation("%w", err)
			}
		}
		if r.violated != nil {
			r.dump()
			return r.violated
		}
		if ended {
			r.sum.add(r.ranks)
			log.Printf("generation %d ended after %v, %d ranks well; %d calls so far", r.nth, time.Since(r.start).Round(time.Second), r.count((*process).unharmed), r.sum.calls)
			return nil
		}
	}
}

// dump lets ranks say where they are, before they are killed.
func (r *runner) dump() {
	for _, p := range r.ranks {
		if !p.gone {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
}

// begin starts the ranks of a job with faults of its own.
func (r *runner) begin() error {
	env, err := r.place.job(r.cfg.hosts)
	if err != nil {
		return err
	}
	var with []string
	if loss := r.cfg.mode.loss(r.rnd, r.nth); loss != "" {
		with = append(with, "ALLCAST_FAULT="+loss)
	}
	if r.rnd.IntN(3) == 0 {
		with = append(with, "ALLCAST_DATAPATH=auto")
	}
	if r.rnd.IntN(4) == 0 {
		with = append(with, "ALLCAST_SECURE=on")
	}
	if r.rnd.IntN(4) == 0 {
		with = append(with, "ALLCAST_INTEGRITY=on")
	}
	with = append(with, fmt.Sprint("ALLCAST_TIMEOUT=", r.cfg.timeout), fmt.Sprintf("%s=%s %d %d %d %d %d", jobVar, r.cfg.mode, r.cfg.seed, r.nth, 1+r.rnd.IntN(2), r.cfg.size, r.limit().Nanoseconds()))
	r.note("generation %d: %v", r.nth, with)
	log.Printf("generation %d: %v", r.nth, with)
	for n := range r.cfg.hosts {
		p := &process{rank: n, cmd: r.place.command(n, append(env, with...)), lostAt: map[int]time.Time{}}
		r.ranks = append(r.ranks, p)
		if err := r.launch(p); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a process and reads what it says.
func (r *runner) launch(p *process) error {
	file, err := os.Create(filepath.Join(r.place.dir, fmt.Sprintf("stderr-%d-%d", r.nth, p.rank)))
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
			n := &note{}
			if err := json.Unmarshal(in.Bytes(), n); err != nil {
				n = &note{What: sayOdd, Text: in.Text()}
			}
			events <- event{rank: p.rank, note: n}
		}
		events <- event{rank: p.rank, end: errors.Join(errEnded, p.cmd.Wait())}
	}()
	return nil
}

var errEnded = errors.New("ended")

// finish ends the generation: what can be healed is, and ranks are told to leave.
func (r *runner) finish(deadline *time.Timer) {
	if r.closing {
		return
	}
	r.closing = true
	r.note("end of generation")
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
		if !p.gone {
			list = append(list, fmt.Sprintf("rank %d (harm %q, epoch %d)", p.rank, p.harm, p.epoch))
		}
	}
	return strings.Join(list, ", ") + " still run"
}

// kill leaves nothing running, and all links up.
func (r *runner) kill() {
	for _, p := range r.ranks {
		if p.cmd.Process != nil && !p.gone {
			_ = p.cmd.Process.Kill()
		}
	}
	for !r.all(func(p *process) bool { return p.gone || p.cmd.Process == nil }) {
		if e := <-r.events; e.note == nil && e.do == nil {
			r.ranks[e.rank].gone = true
		}
	}
}

// handle judges what a rank said.
func (r *runner) handle(e event) {
	if e.do != nil {
		e.do()
		return
	}
	p := r.ranks[e.rank]
	if e.note == nil {
		r.ended(p, e.end)
		return
	}
	n := e.note
	if n.What == sayTick || n.What == sayEnd {
		p.last = n.tally
	}
	if n.What != sayTick {
		r.note("rank %d: %v", p.rank, n)
	}
	switch n.What {
	case sayJoined:
		p.joined = true
	case sayLost:
		r.lost(p, n)
	case sayGivenUp:
		r.sum.givenUp++
		r.aborts.add(p.rank, n)
		if r.cfg.mode != modeCancel && p.unharmed() && r.all(func(p *process) bool { return p.unharmed() }) {
			r.violation("rank %d: %v, and nothing has happened to anybody", p.rank, n)
		}
	case sayCancelled:
		r.aborts.add(p.rank, n)
	case sayEpoch:
		r.epoch(p, n)
	case sayMissing:
		if p.unharmed() {
			r.named(p, n)
		}
	case sayExcluded:
		p.said = n.What
		if p.unharmed() {
			r.violation("rank %d is well, and was left out by the others", p.rank)
		}
	case sayWrong, sayHang:
		r.violation("rank %d: %v", p.rank, n)
	case sayOdd:
		p.said = n.What
		if p.unharmed() {
			r.violation("rank %d: %v", p.rank, n)
		}
	case sayEnd:
		p.said = n.What
		r.leaks(p, n)
	}
	if n.What == sayTick {
		r.grown(p, &n.tally)
	}
}

// named sees that whom a rank blames has really failed.
func (r *runner) named(p *process, n *note) {
	for _, w := range n.Ranks {
		if w < 0 || w >= len(r.ranks) || r.ranks[w].unharmed() {
			r.violation("rank %d blames rank %d, which is well: %v", p.rank, w, n)
		}
	}
}

func (r *runner) lost(p *process, n *note) {
	if !p.unharmed() {
		r.sum.own++ // what a rank says that is cut off is its own view
		return
	}
	r.named(p, n)
	for _, w := range n.Ranks {
		if w < 0 || w >= len(r.ranks) || !p.lostAt[w].IsZero() || r.ranks[w].harm == "" {
			continue
		}
		p.lostAt[w] = time.Now()
		r.sum.verdict(r.ranks[w].harm, time.Since(r.ranks[w].harmAt))
	}
}

// epoch sees that all who are well go on together.
func (r *runner) epoch(p *process, n *note) {
	p.epoch = n.Epoch
	if !p.unharmed() {
		return
	}
	r.sum.shrinks++
	if known, ok := r.epochs[n.Epoch]; !ok {
		r.epochs[n.Epoch] = n.Ranks
	} else if !slices.Equal(known, n.Ranks) {
		r.violation("rank %d goes on with %v, others with %v", p.rank, n.Ranks, known)
	}
	for _, q := range r.ranks {
		if q.unharmed() && !slices.Contains(n.Ranks, q.rank) {
			r.violation("rank %d goes on with %v, without rank %d, which is well", p.rank, n.Ranks, q.rank)
		}
	}
}

// ended judges the end of a process.
func (r *runner) ended(p *process, end error) {
	p.gone = true
	r.note("rank %d: %v", p.rank, strings.ReplaceAll(end.Error(), "\n", ": "))
	switch {
	case p.harm == "kill" || p.harm == "cut" || p.doubt:
	case p.harm == "stop" && (p.said == sayExcluded || p.said == sayEnd || p.said == sayOdd):
	case p.unharmed() && p.said == sayEnd && r.closing:
	default:
		r.violation("rank %d has ended without a reason; it last said %q", p.rank, p.said)
	}
}

// leaks looks at what a rank has left after it has left the job.
func (r *runner) leaks(p *process, n *note) {
	r.sum.goroutines, r.sum.files = max(r.sum.goroutines, n.Goroutines), max(r.sum.files, n.Files)
	if n.Goroutines > 0 || n.Files > ownFiles {
		r.violation("rank %d has %d goroutines and %d files more than before it joined: %s", p.rank, n.Goroutines, n.Files, n.Text)
	}
}

// grown looks at what a rank has while it works: connections to all and from all, and
// a goroutine or two for each.
func (r *runner) grown(p *process, t *tally) {
	r.sum.workGoroutines, r.sum.workFiles = max(r.sum.workGoroutines, t.Goroutines), max(r.sum.workFiles, t.Files)
	if most := 40 + 6*len(r.ranks); t.Goroutines > most || t.Files > most {
		r.violation("rank %d has %d goroutines and %d files: want at most %d", p.rank, t.Goroutines, t.Files, most)
	}
}
