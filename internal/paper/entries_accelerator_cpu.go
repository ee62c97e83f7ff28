package paper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/model/dpa"
)

// reception is the best measured Broadcast to one process with one thread.
type reception struct {
	chunk      int     // bytes of a datagram's payload
	throughput float64 // Gbit/s
}

// paperLinkRate is the rate of the paper's link, in Gbit/s.
const paperLinkRate = 200

// measureReception broadcasts from one local process to another, by datagrams of several sizes.
func measureReception(ctx context.Context, e *Env) ([]reception, error) {
	return cached(e, "reception", func() ([]reception, error) {
		iterations := 20
		if e.Quick {
			iterations = 5
		}
		var all []reception
		for i, chunk := range []int{4096, 32768, 62000} {
			e.progress(float64(i)/3, fmt.Sprintf("receiving chunks of %d bytes", chunk))
			r, err := receive(ctx, e.Self, receiveArguments(chunk, iterations))
			if err != nil {
				return nil, err
			}
			all = append(all, reception{chunk, r})
		}
		return all, nil
	})
}

func receiveArguments(chunk, iterations int) []string {
	return []string{
		"perf", "broadcast", "--ranks", "2", "--algo", "mcast", "-b", "64M", "-w", "1", "-n", strconv.Itoa(iterations),
		"--chunk", strconv.Itoa(chunk), "--json",
	}
}

// receive runs one Broadcast benchmark and returns its best throughput, in Gbit/s.
func receive(ctx context.Context, self string, arguments []string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, arguments...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // one core per process
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("allcast %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	var line struct {
		Bytes float64 `json:"bytes"`
		Wrong int     `json:"wrong"`
		Time  struct {
			Min float64 `json:"min"`
		} `json:"time_us"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &line); err != nil {
		return 0, fmt.Errorf("allcast %s: output: %w", strings.Join(arguments, " "), err)
	}
	if line.Wrong != 0 || line.Bytes <= 0 || line.Time.Min <= 0 {
		return 0, errors.New("allcast perf broadcast: the data is wrong or the time is missing")
	}
	return line.Bytes * 8 / line.Time.Min / 1e3, nil
}

// figure5 is Figure 5 and claim C15: one CPU core beside one accelerator core.
func figure5(ctx context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "fig13", dpa.CompareFigure13)
	if err != nil {
		return nil, err
	}
	offered, err := dpa.Offered(dpa.Config{
		Transport: dpa.UC, Threads: 1, Chunk: 4096, Buffer: 8 << 20, Link: paperLinkRate * 1e9, Sender: dpa.BenchmarkSender,
	})
	if err != nil {
		return nil, err
	}
	out := &Outcome{
		Command: "GOMAXPROCS=1 allcast " + strings.Join(receiveArguments(4096, 20), " "),
		Tables: []Table{{
			Name: "one-core", Title: "Receive throughput", Columns: []string{"receiver", "source", "Gbit/s", "of 200 Gbit/s, %"},
		}},
	}
	f := figure.Figure{
		Title: "One core beside a link of 200 Gbit/s", Y: figure.Axis{Label: "throughput, Gbit/s"},
		X: figure.Axis{Label: "receiver", Names: []string{"one CPU core", "one accelerator core"}},
	}
	const cpu, accelerator = 0, 1
	add := func(position float64, receiver, source string, throughput float64) {
		rows := &out.Tables[0].Rows
		*rows = append(*rows, []any{receiver, source, throughput, 100 * throughput / paperLinkRate})
		f.Series = append(f.Series, figure.Series{
			Name: receiver, Style: figure.Bars, Data: []figure.Point{{X: position, Y: throughput}},
		})
	}
	gbit := func(gibps float64) float64 { return gibps * (1 << 30) * 8 / 1e9 }
	const cores = dpa.ThreadsPerCore
	best, err := addReception(ctx, e, out, func(r reception) {
		add(cpu, fmt.Sprintf("CPU core, chunks of %d bytes", r.chunk), "measured here", r.throughput)
	})
	if err != nil {
		return nil, err
	}
	add(cpu, "any CPU core, one connection", "model of the authors' sender", gbit(offered))
	add(accelerator, "accelerator core, UC", "model", gbit(cell(t, cores, "UC benchmark's sender")))
	add(accelerator, "accelerator core, UD", "model", gbit(cell(t, cores, "UD benchmark's sender")))
	f.Series = append(f.Series, saidBy("fig5", "throughput"))
	out.Figures = []NamedFigure{{Name: "one-core", Figure: f}}
	out.Reason += fmt.Sprintf("The sender of the authors' benchmark limits one connection to about %.0f Gbit/s in "+
		"the model, whatever the receiver can do.", gbit(offered))
	if !out.Measured {
		return out, nil
	}
	out.Verdict = verdictIf(best < paperLinkRate)
	out.Ours = fmt.Sprintf("One core of this machine receives at most %.1f Gbit/s, %.1f %% of 200 Gbit/s.",
		best, 100*best/paperLinkRate)
	return out, nil
}

// addReception measures this machine, if it can, and returns the best throughput.
func addReception(ctx context.Context, e *Env, out *Outcome, add func(reception)) (best float64, err error) {
	if e.Self == "" {
		out.LeftOut = []string{"CPU core: needs the program allcast to start processes"}
		out.Ours = "The CPU core was not measured."
		return 0, nil
	}
	measured, err := measureReception(ctx, e)
	if err != nil {
		return 0, err
	}
	for _, r := range measured {
		add(r)
		best = max(best, r.throughput)
	}
	out.Measured = true
	out.Reason = "Measured on this machine, over loopback and the kernel's network stack: a sender and a receiver with " +
		"one running thread each. The paper's core has a network card with RDMA instead, so only the direction can be " +
		"compared. "
	return best, nil
}
