//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// spread is a median and what it is the median of.
type spread struct{ median, low, high float64 }

func spreadOf(values []float64) (spread, bool) {
	if len(values) == 0 {
		return spread{}, false
	}
	values = slices.Sorted(slices.Values(values))
	k := len(values)
	return spread{(values[k/2] + values[(k-1)/2]) / 2, values[0], values[k-1]}, true
}

func (s spread) String() string {
	digits := 2
	switch {
	case s.median >= 100:
		digits = 0
	case s.median >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, s.median, digits, s.low, digits, s.high)
}

// of sums up what f says of each round.
func (r *results) of(k key, f func(sample) float64) string {
	var values []float64
	for _, s := range r.samples[k] {
		values = append(values, f(s))
	}
	s, ok := spreadOf(values)
	if !ok {
		return "-"
	}
	return s.String()
}

// ratio is how many times faster we are than another, round by round.
func (r *results) ratio(op string, n int64, us, other string) string {
	mine, theirs := r.samples[key{op, n, us}], r.samples[key{op, n, other}]
	var values []float64
	for _, m := range mine {
		for _, t := range theirs {
			if t.round == m.round {
				values = append(values, t.time/m.time)
			}
		}
	}
	s, ok := spreadOf(values)
	if !ok {
		return "-"
	}
	return s.String()
}

func contestants() []string {
	list := []string{theLimit, auto, mcast}
	for _, m := range peers {
		list = append(list, m.name+" default", m.name+" best")
	}
	return list
}

// write writes the tables, with all that must be known to repeat them.
func (r *results) write(ctx context.Context) error {
	if r.cfg.docs == "" {
		return nil
	}
	return os.WriteFile(r.cfg.docs, []byte(r.preface(ctx)+r.tables()), 0o644)
}

func (r *results) tables() string {
	var b strings.Builder
	for _, op := range r.cfg.ops {
		fmt.Fprintf(&b, "\n## %s: time, in ms\n\n", strings.ToUpper(op[:1])+op[1:])
		r.table(&b, op, contestants(), func(n int64, who string) string {
			return r.of(key{op, n, who}, func(s sample) float64 { return s.time / 1e3 })
		})
		for _, us := range []string{auto, mcast} {
			fmt.Fprintf(&b, "\n### %s: how many times faster than\n\n", us)
			others := slices.DeleteFunc(contestants(), func(who string) bool { return who == auto || who == mcast })
			r.table(&b, op, others, func(n int64, who string) string { return r.ratio(op, n, us, who) })
		}
		fmt.Fprintf(&b, "\n### What was chosen\n\n")
		r.table(&b, op, []string{auto, "Open MPI best", "MPICH best"}, func(n int64, who string) string { return r.chosen(op, n, who) })
		fmt.Fprintf(&b, "\n### CPU seconds a rank uses per GB it receives\n\n")
		r.table(&b, op, []string{auto, mcast, "Open MPI default", "Open MPI best"}, func(n int64, who string) string {
			return r.of(key{op, n, who}, func(s sample) float64 { return s.cpu * 1e3 / float64(r.received(op, n)) })
		})
		fmt.Fprintf(&b, "\n### Memory of a rank besides the operation's buffers, in MiB; repaired share of Allcast mcast\n\n")
		r.table(&b, op, []string{auto, "Open MPI default", "repaired"}, func(n int64, who string) string {
			if who == "repaired" {
				return r.of(key{op, n, mcast}, func(s sample) float64 { return 100 * s.repaired }) + " %"
			}
			return r.of(key{op, n, who}, func(s sample) float64 { return float64(s.peak-r.buffers(op, n)) / (1 << 20) })
		})
	}
	if len(r.gaps) > 0 {
		fmt.Fprintf(&b, "\n## What could not be measured\n\n")
		for _, g := range r.gaps {
			fmt.Fprintf(&b, "- %s\n", g)
		}
	}
	return b.String()
}

func (r *results) table(b *strings.Builder, op string, columns []string, cell func(n int64, who string) string) {
	fmt.Fprintf(b, "| bytes | %s |\n|--:|%s\n", strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, n := range r.cfg.sizesOf(op) {
		fmt.Fprintf(b, "| %v |", units.Size(n))
		for _, who := range columns {
			fmt.Fprintf(b, " %s |", cell(n, who))
		}
		b.WriteByte('\n')
	}
}

// buffers are the application's.
func (r *results) buffers(op string, n int64) int64 {
	if op == "allgather" {
		return n * int64(r.ranks+1)
	}
	return n
}

func (r *results) chosen(op string, n int64, who string) string {
	if who == auto {
		var names []string
		for _, s := range r.samples[key{op, n, auto}] {
			if !slices.Contains(names, s.algorithm) {
				names = append(names, s.algorithm)
			}
		}
		return strings.Join(names, "; ")
	}
	if a := r.best[key{op, n, strings.TrimSuffix(who, " best")}]; a != "" {
		return algorithmName(op, a)
	}
	return "-"
}

func (r *results) preface(ctx context.Context) string {
	return fmt.Sprintf(`# Beside what people use today

Made by `+"`go run ./bench/peers %s`"+` (`+"`make bench-peers`"+` is that without flags) on %s: %s, %d processors, Linux %s; load average before: %s. It took %v.

All are measured in one lab (%s, MTU 9000, no rate limit; %d hosts that share the processors), one after the other, %d rounds. Numbers are medians over the rounds, with the least
and the most in brackets; ratios are taken round by round. A time is that of the slowest rank from leaving a barrier to the operation's end, the median over 5 to 50
iterations after 3 to 5 to warm up. Every byte of every iteration was verified, by the same pattern for all. bytes is what one rank sends.

- **%s**: no protocol. One host (Broadcast) or all in turn (Allgather) send messages of that size back to back in super-packets, by a clock; the others count. Its time is
  what a rank receives in the operation over the goodput of the slowest receiver, at the highest rate with less than 0.1 %% lost, found by bisection. Receivers put all in the same
  memory, which stays in the processor's cache.
- **Allcast**: `+"`allcast perf OP --algo auto`"+` and `+"`--algo mcast`"+`, with a GOMAXPROCS of a rank's share of the processors, as `+"`allcast run` and `allcast lab run`"+` set it.
- **Open MPI** (%s): bench/peers/mpi/perf.c by `+"`mpirun --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1 --bind-to none`"+`, one rank a host, started
  through what stands for ssh. Best: `+"`--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_OP_algorithm N`"+` for the N that was fastest at that size in a run before.
- **MPICH** (%s): the same program by `+"`mpiexec.hydra`"+` with `+"`UCX_TLS=tcp,self UCX_NET_DEVICES=eth0`"+`. It has no option to yield while it waits; the program does it where UCX polls, since without it
  ranks that share processors take several times longer. Best: `+"`MPIR_CVAR_OP_INTRA_ALGORITHM`"+`.
- CPU time is user and system time during the operation only. Memory is the most that was resident.
`, strings.Join(os.Args[1:], " "), r.began.UTC().Format("2006-01-02 15:04 MST"), cpuModel(), runtime.NumCPU(), kernel(ctx), r.load, time.Since(r.began).Round(time.Second),
		r.cfg.topology, r.ranks, r.now+1, theLimit, version(ctx, "openmpi-bin"), version(ctx, "mpich"))
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel(ctx context.Context) string { return output(ctx, "uname", "-r") }

func version(ctx context.Context, name string) string {
	return output(ctx, "dpkg-query", "-W", "-f", "Debian's ${Package} ${Version}", name)
}

func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
