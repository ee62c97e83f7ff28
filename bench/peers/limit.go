//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"time"
)

// blaster is the bare multicast sender: a process a host, and who tells them what to do.
type blaster struct {
	hosts []*blastHost
}

type blastHost struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startBlaster(ctx context.Context, p *place) (*blaster, error) {
	b := &blaster{}
	for h := range p.ranks {
		cmd := command(ctx, p.allcast, "lab", "exec", "--name", p.lab.Plan.Config.Name, fmt.Sprintf("host%d", h), "--", p.self, "blast")
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		b.hosts = append(b.hosts, &blastHost{cmd, in, bufio.NewReader(out)})
	}
	for _, h := range b.hosts {
		if _, err := h.answer(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// stop ends the processes: memory and sockets of theirs must not disturb others.
func (b *blaster) stop() {
	for _, h := range b.hosts {
		_ = h.in.Close()
	}
	for _, h := range b.hosts {
		_ = h.cmd.Wait() // it has said what was wrong
	}
}

func (h *blastHost) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(h.in, format+"\n", args...)
	return err
}

func (h *blastHost) answer() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the bare sender ended: %w", err)
	}
	return strings.TrimSpace(line), nil
}

const (
	blastBytes = 64 << 20 // of one trial: several times what all queues hold
	blastLoss  = 0.001
	blastSteps = 8
	blastSlow  = 0.1 // GB/s
	blastFast  = 3.2
)

// limit finds the highest rate with hardly any loss, and returns the goodput of the
// slowest receiver then, in GB/s. around is what it was before, which saves time.
func (b *blaster) limit(op string, n int64, around float64) (float64, error) {
	if around > 0 {
		best, err := b.search(op, n, max(blastSlow, around/1.6), around*1.6, blastSteps-3)
		if best > 0 || err != nil {
			return best, err
		}
	}
	return b.search(op, n, blastSlow, blastFast, blastSteps)
}

// search looks by bisection. A rate that fails gets a second chance: other programs of
// this machine make it fail too.
func (b *blaster) search(op string, n int64, slow, fast float64, steps int) (best float64, err error) {
	for range steps {
		rate := math.Sqrt(slow * fast)
		passed := false
		for range 2 {
			goodput, lost, err := b.trial(op, n, rate)
			if err != nil {
				return 0, err
			}
			if passed = lost < blastLoss; passed {
				best = max(best, goodput)
				break
			}
		}
		if passed {
			slow = rate
		} else {
			fast = rate
		}
	}
	return best, nil
}

// trial sends messages of n bytes one after the other: of one host, or of all in turn.
func (b *blaster) trial(op string, n int64, rate float64) (goodput, lost float64, err error) {
	senders := 1
	if op == "allgather" {
		senders = len(b.hosts)
	}
	each := max(1, int(blastBytes/n)/senders)
	for _, h := range b.hosts {
		if err := h.tell("reset"); err != nil {
			return 0, 0, err
		}
		if _, err := h.answer(); err != nil {
			return 0, 0, err
		}
	}
	// Long enough for all to have got the order and to have prepared their data.
	start := now() + int64(20*time.Millisecond) + n
	for i, h := range b.hosts[:senders] {
		if err := h.tell("%d %g %d %d %d %d", start, rate, n, each*senders, i, senders); err != nil {
			return 0, 0, err
		}
	}
	for _, h := range b.hosts[:senders] {
		if _, err := h.answer(); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(20 * time.Millisecond) // what is queued is taken
	goodput = math.Inf(1)
	for i, h := range b.hosts {
		want := int64(each*senders) * n
		if i < senders {
			want -= int64(each) * n // nobody receives what he sends himself
		}
		if want == 0 {
			continue
		}
		if err := h.tell("report"); err != nil {
			return 0, 0, err
		}
		line, err := h.answer()
		if err != nil {
			return 0, 0, err
		}
		var got, last int64
		if _, err := fmt.Sscan(line, &got, &last); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", line, err)
		}
		lost = max(lost, 1-float64(got)/float64(want))
		goodput = min(goodput, float64(got)/float64(max(1, last-start)))
	}
	return goodput, lost, nil
}
