//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed" // for the tables
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/allcast/allcast/internal/model/dpa"
)

// longChunk nearly fills 7 packets of the lab's MTU.
const longChunk = 62_000

func specs(c config) ([]spec, error) {
	all := []spec{
		{ID: "plain", Name: "host, plain sockets", Plain: true, Datapath: "host"},
		{ID: "host", Name: "host, GRO and scatter", Datapath: "host"},
		{ID: "bpf-sockfilter", Name: "bpf, sockfilter", Datapath: "bpf", Hook: "sockfilter"},
		{ID: "bpf-tcx", Name: "bpf, tcx", Datapath: "bpf", Hook: "tcx"},
		{ID: "bpf-xdp", Name: "bpf, xdp", Datapath: "bpf", Hook: "xdp"},
		{ID: "host-long", Name: "host, chunks of 7 packets", Datapath: "host", Chunk: longChunk},
		{
			ID: "bpf-sockfilter-long", Name: "bpf, sockfilter, chunks of 7 packets",
			Datapath: "bpf", Hook: "sockfilter", Chunk: longChunk,
		},
		{ID: "bpf-tcx-long", Name: "bpf, tcx, chunks of 7 packets", Datapath: "bpf", Hook: "tcx", Chunk: longChunk},
		{ID: "tcp", Name: "one TCP stream", TCP: true},
	}
	for i := range all {
		all[i].Bytes, all[i].Iters = c.bytes, c.iters
	}
	if c.only == "" {
		return all, nil
	}
	var some []spec
	for id := range strings.SplitSeq(c.only, ",") {
		i := slices.IndexFunc(all, func(s spec) bool { return s.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("-only: unknown configuration %q", id)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// run measures all configurations once per round, so that a change of the machine's load affects all of them.
func run(ctx context.Context, c config) error {
	if os.Geteuid() != 0 {
		return errors.New("the lab and eBPF need root: run this command as root")
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
		return fmt.Errorf("build cmd/allcast (run this command in the repository's root): %w", err)
	}
	all, err := specs(c)
	if err != nil {
		return err
	}
	got := make([][]result, len(all))
	for round := range c.rounds {
		for i := range all {
			r, err := one(ctx, allcast, &all[i])
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].Name, err)
			}
			got[i] = append(got[i], *r)
			log.Printf("round %d of %d, %s: %.2f GB/s", round+1, c.rounds, all[i].Name, c.rate(r))
		}
	}
	if c.json {
		return printJSON(os.Stdout, c, all, got)
	}
	cores, err := oneCore(c, all, got)
	if err != nil {
		return err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	var b strings.Builder
	err = tables.Execute(&b, map[string]any{
		"Iterations": c.iters, "MiB": c.bytes >> 20, "Rounds": c.rounds, "Kernel": strings.TrimSpace(string(release)),
		"Processors": runtime.NumCPU(), "Date": time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		"Configurations": configurations(c, all, got), "Cores": cores,
	})
	if err != nil {
		return err
	}
	return write(c, b.String())
}

//go:embed tables.md.tmpl
var tablesText string

var tables = template.Must(template.New("tables").Parse(tablesText))

// one measures one configuration.
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
	args := []string{"lab", "run", "--topology", "star:2", "--json"}
	if !s.TCP {
		args = append(args, "--threads") // would split the super-packets of TCP
	}
	cmd := exec.CommandContext(ctx, allcast, append(args, "--", self)...)
	cmd.Env = append(os.Environ(), specVariable+"="+string(text))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // an interrupted command removes its lab
	cmd.WaitDelay = 20 * time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var r result
	return &r, json.NewDecoder(&out).Decode(&r)
}

// printJSON prints the rate and the losses of each run.
func printJSON(out io.Writer, c config, all []spec, got [][]result) error {
	e := json.NewEncoder(out)
	for round := range c.rounds {
		for i := range all {
			r := &got[i][round]
			err := e.Encode(map[string]any{
				"configuration": all[i].ID, "round": round, "GBps": c.rate(r),
				"repaired_pct": 100 * float64(r[repaired]) / float64(r.allChunks()),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// median returns the median of f over all rounds.
func median(rs []result, f func(*result) float64) float64 {
	v := make([]float64, len(rs))
	for i := range rs {
		v[i] = f(&rs[i])
	}
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// configurations returns the rows of medians, and of ratios to the default datapath, which is a process with
// super-packets.
func configurations(c config, all []spec, got [][]result) string {
	userTime := func(r *result) float64 { return float64(r[user]) }
	cpuTime := func(r *result) float64 { return float64(r[user] + r[system]) }
	base := slices.IndexFunc(all, func(s spec) bool { return s.Datapath == "host" && !s.Plain && s.Chunk == 0 })
	var b strings.Builder
	for i := range all {
		rs := got[i]
		if all[i].TCP { // has no chunks
			fmt.Fprintf(&b, "| %s | %.2f | %.2fx | - | - | - | - | - | - | %.1f %% | %.1f %% |\n",
				all[i].Name, median(rs, c.rate), median(rs, c.rate)/median(got[base], c.rate),
				100*median(rs, userTime)/median(got[base], userTime), 100*median(rs, cpuTime)/median(got[base], cpuTime))
			continue
		}
		perChunk := func(measurement int) float64 {
			return median(rs, func(r *result) float64 { return float64(r[measurement]) / 1e3 / float64(max(1, r[chunks])) })
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2fx | %.0f | %.2f %% | %.3f | %.3f | %.3f | %.2f | %.1f %% | %.1f %% |\n",
			all[i].Name, median(rs, c.rate), median(rs, c.rate)/median(got[base], c.rate),
			median(rs, func(r *result) float64 { return float64(int64(c.bytes) * int64(c.iters) / r.allChunks()) }),
			median(rs, func(r *result) float64 { return 100 * float64(r[repaired]) / float64(r.allChunks()) }),
			perChunk(user), perChunk(system), perChunk(thread), perChunk(softirq),
			100*median(rs, userTime)/median(got[base], userTime), 100*median(rs, cpuTime)/median(got[base], cpuTime))
	}
	return b.String()
}

// oneCore compares one core with a link of 200 Gbit/s, for the paper's claims C12 and C15.
func oneCore(c config, all []spec, got [][]result) (string, error) {
	const link = 200e9
	var b strings.Builder
	line := func(name string, rate float64) {
		fmt.Fprintf(&b, "| %s | %.2f | %.0f %% |\n", name, rate, 100*rate*8e9/link)
	}
	for i := range all {
		line("measured here: "+all[i].Name, median(got[i], c.rate))
	}
	for _, t := range []dpa.Transport{dpa.UD, dpa.UC} {
		r, err := dpa.Run(dpa.Config{Transport: t, Threads: 16, Chunk: 4096, Buffer: 8 << 20, Link: link})
		if err != nil {
			return "", err
		}
		line("model of one accelerator core, 16 threads, "+string(t), r.Throughput*(1<<30)/1e9)
	}
	return b.String(), nil
}

const (
	from  = "<!-- measured -->"
	until = "<!-- until here -->"
)

// write replaces the table in its page.
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
		return fmt.Errorf("%s: the marks %q and %q are missing", c.page, from, until)
	}
	return os.WriteFile(c.page, []byte(head+from+"\n"+table+until+tail), 0o644)
}
