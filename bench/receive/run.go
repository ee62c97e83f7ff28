//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/model/dpa"
)

// long is a chunk that fills 7 packets of the lab's MTU, but for a few bytes.
const long = 62_000

func specs(c config) []spec {
	all := []spec{
		{Name: "host, plain sockets", Plain: true, Datapath: "host"},
		{Name: "host, GRO and scatter", Datapath: "host"},
		{Name: "bpf, sockfilter", Datapath: "bpf", Hook: "sockfilter"},
		{Name: "bpf, tcx", Datapath: "bpf", Hook: "tcx"},
		{Name: "bpf, xdp", Datapath: "bpf", Hook: "xdp"},
		{Name: "host, chunks of 7 packets", Datapath: "host", Chunk: long},
		{Name: "bpf, sockfilter, chunks of 7 packets", Datapath: "bpf", Hook: "sockfilter", Chunk: long},
		{Name: "bpf, tcx, chunks of 7 packets", Datapath: "bpf", Hook: "tcx", Chunk: long},
	}
	for i := range all {
		all[i].Bytes, all[i].Iters = c.bytes, c.iters
	}
	return all
}

// run measures all, in turn.
func run(ctx context.Context, c config) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a lab of network namespaces, and eBPF, need root")
	}
	dir, err := os.MkdirTemp("", "allcast-receive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	allcast := filepath.Join(dir, "allcast")
	build := exec.CommandContext(ctx, "go", "build", "-o", allcast, "./cmd/allcast")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the command, from the repository's root: %w", err)
	}
	all := specs(c)
	got := make([][]result, len(all))
	for round := range c.rounds {
		for i := range all {
			r, err := one(ctx, allcast, &all[i])
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].Name, err)
			}
			got[i] = append(got[i], *r)
			log.Printf("round %d of %d, %s: %.2f GB/s", round+1, c.rounds, all[i].Name, float64(c.bytes)*float64(c.iters)/float64(r.Wall))
		}
	}
	cores, err := oneCore(c, all, got)
	if err != nil {
		return err
	}
	return write(c, table(c, all, got)+cores)
}

// one measures one.
func one(ctx context.Context, allcast string, s *spec) (*result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, allcast, "lab", "run", "--topology", "star:2", "--threads", "--json", "--", self)
	cmd.Env = append(os.Environ(), specVariable+"="+string(text))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it takes the lab down
	cmd.WaitDelay = 20 * time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaints.String())
	}
	var r result
	return &r, json.NewDecoder(&out).Decode(&r)
}

// median of one number of all rounds.
func median(rs []result, f func(*result) float64) float64 {
	v := make([]float64, len(rs))
	for i := range rs {
		v[i] = f(&rs[i])
	}
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// table shows medians, and ratios to the process with super-packets.
func table(c config, all []spec, got [][]result) string {
	total := float64(c.bytes) * float64(c.iters)
	rate := func(r *result) float64 { return total / float64(r.Wall) }
	user := func(r *result) float64 { return float64(r.User) }
	cpu := func(r *result) float64 { return float64(r.User + r.Sys) }
	base := 0
	for i := range all {
		if all[i].Datapath == "host" && !all[i].Plain && all[i].Chunk == 0 {
			base = i
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Broadcast of %d MiB, %d times, lab `star:2`, one receive core; medians of %d rounds in turn; %s, %d processors, %s. `go run ./bench/receive`.\n\n",
		c.bytes>>20, c.iters, c.rounds, kernel(), runtime.NumCPU(), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	b.WriteString("| received by | GB/s | times | chunk | repaired | process: user us | system us | kernel's thread us | softirq us | user, of GRO's | user + system, of GRO's |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range all {
		rs := got[i]
		per := func(f func(*result) int64) float64 {
			return median(rs, func(r *result) float64 { return float64(f(r)) / 1e3 / float64(max(1, r.Chunks)) })
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2fx | %.0f | %.2f %% | %.3f | %.3f | %.3f | %.2f | %.1f %% | %.1f %% |\n", all[i].Name,
			median(rs, rate), median(rs, rate)/median(got[base], rate), median(rs, func(r *result) float64 { return float64(r.ChunkBytes) }),
			median(rs, func(r *result) float64 { return 100 * float64(r.Repaired) / float64(max(1, r.Chunks+r.Repaired)) }),
			per(func(r *result) int64 { return r.User }), per(func(r *result) int64 { return r.Sys }),
			per(func(r *result) int64 { return r.Thread }), per(func(r *result) int64 { return r.Softirq }),
			100*median(rs, user)/median(got[base], user), 100*median(rs, cpu)/median(got[base], cpu))
	}
	b.WriteString("\nTimes are per chunk (datagram), of the receiving process, of the kernel's thread that takes packets from its interface, and of all softirqs outside of it (the sender's too).\n")
	return b.String()
}

// oneCore is the paper's C12 and C15: what one core does, of 200 Gbit/s.
func oneCore(c config, all []spec, got [][]result) (string, error) {
	const link = 200e9
	var b strings.Builder
	b.WriteString("\nOne core against a link of 200 Gbit/s, as the paper has it (C12: an accelerator's core with 16 threads is 25 % ahead of a CPU core; C15: one CPU core with a datagram datapath does not reach the link's rate):\n\n")
	b.WriteString("| core | GB/s | of the link |\n|---|---|---|\n")
	line := func(name string, rate float64) {
		fmt.Fprintf(&b, "| %s | %.2f | %.0f %% |\n", name, rate, 100*rate*8e9/link)
	}
	for i := range all {
		line("measured here: "+all[i].Name, median(got[i], func(r *result) float64 { return float64(c.bytes) * float64(c.iters) / float64(r.Wall) }))
	}
	for _, t := range []dpa.Transport{dpa.UD, dpa.UC} {
		r, err := dpa.Run(dpa.Config{Transport: t, Threads: 16, Chunk: 4096, Buffer: 8 << 20, Link: link})
		if err != nil {
			return "", err
		}
		line("model of the accelerator, one core, 16 threads, "+string(t), r.Throughput*(1<<30)/1e9)
	}
	b.WriteString("\nC15 holds here, by far. The ratio of C12 cannot be checked: the core is another, in a virtual machine, and its packets pass the kernel's network stack.\n")
	return b.String(), nil
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(b))
}

const (
	from  = "<!-- measured -->"
	until = "<!-- until here -->"
)

// write puts the table in its page.
func write(c config, table string) error {
	if c.page == "" {
		_, err := os.Stdout.WriteString(table)
		return err
	}
	b, err := os.ReadFile(c.page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(b), from)
	_, tail, also := strings.Cut(rest, until)
	if !found || !also {
		return fmt.Errorf("%s has no %q and %q", c.page, from, until)
	}
	return os.WriteFile(c.page, []byte(head+from+"\n"+table+until+tail), 0o644)
}
