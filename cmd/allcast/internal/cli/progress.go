package cli

import (
	"fmt"
	"io"
	"time"
)

const (
	progressDelay    = time.Second // time before the first line; most work is shorter
	progressInterval = 250 * time.Millisecond
	clearLine        = "\r\x1b[K"
)

// ProgressLine shows the progress of long work on one line of a terminal. A nil ProgressLine shows nothing. It is not
// safe for use by several goroutines.
type ProgressLine struct {
	out     io.Writer
	start   time.Time
	dueAt   time.Time // time of the next line
	written bool
}

// NewProgressLine returns a line if people read stderr, or else nil: --json is for programs. A nil isTerminal stands
// for IsTerminal.
func NewProgressLine(e *Env, isTerminal func(io.Writer) bool) *ProgressLine {
	if isTerminal == nil {
		isTerminal = IsTerminal
	}
	if e.JSON || !isTerminal(e.Stderr) {
		return nil
	}
	now := time.Now()
	return &ProgressLine{out: e.Stderr, start: now, dueAt: now.Add(progressDelay)}
}

// Update writes a new line if one is due: what runs, which share of the work is done (0 to 1), and a detail.
func (p *ProgressLine) Update(now time.Time, what string, share float64, detail string) {
	if p == nil || now.Before(p.dueAt) {
		return
	}
	p.dueAt, p.written = now.Add(progressInterval), true
	line := fmt.Sprintf("%s: %.0f %%, %s", what, 100*share, detail)
	if took := now.Sub(p.start); share > 0 && share < 1 {
		left := time.Duration(float64(took) * (1 - share) / share)
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	// A failed write shows no progress, which is no reason to stop the work.
	_, _ = fmt.Fprint(p.out, clearLine+line)
}

// Clear removes the line.
func (p *ProgressLine) Clear() {
	if p != nil && p.written {
		_, _ = fmt.Fprint(p.out, clearLine)
		p.written = false
	}
}
