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

// blaster controls the bare multicast sender, which has one process per host.
type blaster []*blastHost

type blastHost struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startBlaster(ctx context.Context, bed *testbed) (b blaster, err error) {
	for h := range bed.ranks {
		cmd := bed.exec(ctx, h, bed.self, "blast")
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
		b = append(b, &blastHost{cmd, in, bufio.NewReader(out)})
	}
	for _, h := range b {
		if _, err := h.answer(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// stop ends the processes, so that their memory and sockets do not disturb other contestants.
func (b blaster) stop() {
	for _, h := range b {
		_ = h.in.Close()
	}
	for _, h := range b {
		_ = h.cmd.Wait() // the process has logged its error
	}
}

func (h *blastHost) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(h.in, format+"\n", args...)
	return err
}

// ask sends a command and returns its answer.
func (h *blastHost) ask(command string) (string, error) {
	if err := h.tell("%s", command); err != nil {
		return "", err
	}
	return h.answer()
}

func (h *blastHost) answer() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the bare multicast sender ended: %w", err)
	}
	return strings.TrimSpace(line), nil
}

const (
	blastBytes = 64 << 20 // bytes per trial, several times the size of all queues
	blastLoss  = 0.001    // limit of the lost share
	blastSteps = 8
	blastSlow  = 0.1 // GB/s
	blastFast  = 3.2 // GB/s
)

// limit finds the highest rate with a loss below blastLoss, and returns the goodput of the slowest
// receiver at that rate, in GB/s. around is an earlier result, which shortens the search.
func (b blaster) limit(op string, n int64, around float64) (float64, error) {
	if around > 0 {
		best, err := b.search(op, n, max(blastSlow, around/1.6), around*1.6, blastSteps-3)
		if best > 0 || err != nil {
			return best, err
		}
	}
	return b.search(op, n, blastSlow, blastFast, blastSteps)
}

// search bisects. It tries a failed rate a second time, because other programs on this machine can
// cause losses, too.
func (b blaster) search(op string, n int64, slow, fast float64, steps int) (best float64, err error) {
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

// trial sends messages of n bytes back to back: all from one host, or round-robin from all hosts.
func (b blaster) trial(op string, n int64, rate float64) (goodput, lost float64, err error) {
	senders := 1
	if op == "allgather" {
		senders = len(b)
	}
	each := max(1, int(blastBytes/n)/senders)
	for _, h := range b {
		if _, err := h.ask("reset"); err != nil {
			return 0, 0, err
		}
	}
	// Leave time for all senders to read the order and to prepare their data.
	start := now() + int64(20*time.Millisecond) + n
	for i, h := range b[:senders] {
		if err := h.tell("%d %g %d %d %d %d", start, rate, n, each*senders, i, senders); err != nil {
			return 0, 0, err
		}
	}
	for _, h := range b[:senders] {
		if _, err := h.answer(); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(20 * time.Millisecond) // receivers drain their queues
	goodput = math.Inf(1)
	for i, h := range b {
		want := int64(each*senders) * n
		if i < senders {
			want -= int64(each) * n // a host does not receive its own messages
		}
		if want == 0 {
			continue
		}
		line, err := h.ask("report")
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
