package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

const (
	progressDelay    = time.Second // time before the first line; most simulations are shorter
	progressInterval = 250 * time.Millisecond
	clearLine        = "\r\x1b[K"
)

// progressLine shows the progress of a simulation on one line of a terminal. A nil progressLine shows nothing.
type progressLine struct {
	out     io.Writer
	name    string
	start   time.Time
	dueAt   time.Time // time of the next line
	written bool
}

// showProgress makes a simulation show its progress if people read stderr. --json is for programs.
func (c *Command) showProgress(e *cli.Env, cfg *sim.Config) *progressLine {
	isTerminal := c.isTerminal
	if isTerminal == nil {
		isTerminal = cli.IsTerminal
	}
	if e.JSON || !isTerminal(e.Stderr) {
		return nil
	}
	now := time.Now()
	p := &progressLine{
		out: e.Stderr, name: fmt.Sprintf("%s (%s)", cfg.Op, cfg.Algo), start: now, dueAt: now.Add(progressDelay),
	}
	cfg.Progress = func(s sim.Progress) { p.update(time.Now(), s) }
	return p
}

// update writes a new line if one is due.
func (p *progressLine) update(now time.Time, s sim.Progress) {
	if now.Before(p.dueAt) {
		return
	}
	p.dueAt, p.written = now.Add(progressInterval), true
	line := fmt.Sprintf("%s: %.0f %%, %v simulated", p.name, 100*s.Share, s.Time.Round(time.Microsecond))
	if took := now.Sub(p.start); s.Share > 0 && s.Share < 1 {
		left := time.Duration(float64(took) * (1 - s.Share) / s.Share)
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	// A failed write shows no progress, which is no reason to stop the simulation.
	_, _ = fmt.Fprint(p.out, clearLine+line)
}

// clear removes the line.
func (p *progressLine) clear() {
	if p != nil && p.written {
		_, _ = fmt.Fprint(p.out, clearLine)
	}
}
