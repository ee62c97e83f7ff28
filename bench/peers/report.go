//go:build linux

package main

import (
	"context"
	_ "embed" // for the page's first part
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// spread formats the median of some values, with their minimum and maximum.
func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	slices.Sort(values)
	k := len(values)
	median, digits := (values[k/2]+values[(k-1)/2])/2, 2
	switch {
	case median < 0.1:
		digits = 3
	case median >= 100:
		digits = 0
	case median >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, median, digits, values[0], digits, values[k-1])
}

// of summarises f over all rounds of one cell.
func (r *results) of(k key, f func(sample) float64) string {
	var values []float64
	for _, s := range r.samples[k] {
		values = append(values, f(s))
	}
	return spread(values)
}

// ratio summarises how many times faster Allcast is than another contestant, round by round.
func (r *results) ratio(op string, n int64, ours, other string) string {
	var values []float64
	for _, m := range r.samples[key{op, n, ours}] {
		for _, t := range r.samples[key{op, n, other}] {
			if t.round == m.round {
				values = append(values, t.time/m.time)
			}
		}
	}
	return spread(values)
}

// write writes the page: the tables, and what a reader needs to repeat the measurement.
func (r *results) write(ctx context.Context) error {
	if r.cfg.docs == "" {
		return nil
	}
	preface, err := r.preface(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(r.cfg.docs, []byte(preface+r.tables()+scaleSection(r.cfg.docs)), 0o644)
}

// scaleSection returns the end of the page, which bench/scale writes.
func scaleSection(page string) string {
	old, err := os.ReadFile(page)
	if err != nil {
		return "" // a new page
	}
	if _, section, found := strings.Cut(string(old), scaleHeading); found {
		return scaleHeading + section
	}
	return ""
}

// scaleHeading starts the part of the page that this program keeps.
const scaleHeading = "\n## Scale\n"

// printJSON prints all samples, one object per line. It fails if one is missing.
func (r *results) printJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	for _, op := range r.cfg.ops {
		for _, n := range r.cfg.sizesOf(op) {
			for _, contestant := range r.cfg.contestants(op) {
				for _, s := range r.samples[key{op, n, contestant}] {
					err := e.Encode(map[string]any{
						"op": op, "bytes": n, "contestant": flagName(contestant), "round": s.round, "ranks": r.ranks,
						"time_us": s.time, "cpu_us": s.cpu, "algorithm": s.algorithm,
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	if len(r.gaps) > 0 {
		return fmt.Errorf("%d measurements failed: %s", len(r.gaps), strings.Join(r.gaps, "; "))
	}
	return nil
}

func (r *results) tables() string {
	var b strings.Builder
	for _, op := range r.cfg.ops {
		fmt.Fprintf(&b, "\n## %s: time, in ms\n\n", strings.ToUpper(op[:1])+op[1:])
		r.table(&b, op, r.cfg.contestants(op), func(n int64, contestant string) string {
			return r.of(key{op, n, contestant}, func(s sample) float64 { return s.time / 1e3 })
		})
		isAllcast := func(c string) bool { return c == auto || c == mcast }
		for _, ours := range allcastAs(op) {
			if !r.cfg.selects(ours) {
				continue
			}
			fmt.Fprintf(&b, "\n### %s: how many times faster than\n\n", ours)
			others := slices.DeleteFunc(r.cfg.contestants(op), isAllcast)
			r.table(&b, op, others, func(n int64, contestant string) string { return r.ratio(op, n, ours, contestant) })
		}
		if operations[op].ranks > 0 {
			fmt.Fprintf(&b, "\n### Bandwidth, in GB/s\n\n")
			r.table(&b, op, r.cfg.contestants(op), func(n int64, contestant string) string {
				return r.of(key{op, n, contestant}, func(s sample) float64 { return float64(r.received(op, n)) / s.time / 1e3 })
			})
		}
		tuned := slices.DeleteFunc(r.cfg.contestants(op), func(c string) bool {
			return c != auto && !strings.HasSuffix(c, " best")
		})
		fmt.Fprintf(&b, "\n### Algorithms\n\n")
		r.table(&b, op, tuned, func(n int64, contestant string) string { return r.chosen(op, n, contestant) })
		fmt.Fprintf(&b, "\n### CPU seconds per rank and GB received\n\n")
		costs := slices.DeleteFunc(r.cfg.contestants(op), func(c string) bool {
			return !isAllcast(c) && !strings.HasPrefix(c, "Open MPI")
		})
		r.table(&b, op, costs, func(n int64, contestant string) string {
			return r.of(key{op, n, contestant}, func(s sample) float64 { return s.cpu * 1e3 / float64(r.received(op, n)) })
		})
		fmt.Fprintf(&b, "\n### Memory per rank without the operation's buffers, in MiB")
		memory := []string{auto, "Open MPI default"}
		if operations[op].multicast {
			fmt.Fprintf(&b, "; repaired share of Allcast mcast")
			memory = append(memory, "repaired")
		}
		b.WriteString("\n\n")
		r.table(&b, op, memory, func(n int64, contestant string) string {
			if contestant == "repaired" {
				return r.of(key{op, n, mcast}, func(s sample) float64 { return 100 * s.repaired }) + " %"
			}
			return r.of(key{op, n, contestant}, func(s sample) float64 { return float64(s.peak-r.buffers(op, n)) / (1 << 20) })
		})
	}
	if len(r.gaps) > 0 {
		fmt.Fprintf(&b, "\n## Failed measurements\n\n")
		for _, g := range r.gaps {
			fmt.Fprintf(&b, "- %s\n", g)
		}
	}
	return b.String()
}

func (r *results) table(b *strings.Builder, op string, columns []string, cell func(n int64, contestant string) string) {
	fmt.Fprintf(b, "| bytes | %s |\n|--:|%s\n", strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, n := range r.cfg.sizesOf(op) {
		fmt.Fprintf(b, "| %v |", units.Size(n))
		for _, contestant := range columns {
			fmt.Fprintf(b, " %s |", cell(n, contestant))
		}
		b.WriteByte('\n')
	}
}

// buffers returns the size of the application's buffers on one rank.
func (r *results) buffers(op string, n int64) int64 {
	return n * operations[op].buffers(int64(r.ranks))
}

func (r *results) chosen(op string, n int64, contestant string) string {
	if contestant == auto {
		var names []string
		for _, s := range r.samples[key{op, n, auto}] {
			if !slices.Contains(names, s.algorithm) {
				names = append(names, s.algorithm)
			}
		}
		return strings.Join(names, "; ")
	}
	if a := r.best[key{op, n, strings.TrimSuffix(contestant, " best")}]; a != "" {
		return algorithmName(op, a)
	}
	return "-"
}

//go:embed preface.md.tmpl
var prefaceText string

var prefaceTemplate = template.Must(template.New("preface").Parse(prefaceText))

func (r *results) preface(ctx context.Context) (string, error) {
	var b strings.Builder
	err := prefaceTemplate.Execute(&b, map[string]any{
		"Command": strings.Join(append([]string{"go run ./bench/peers"}, os.Args[1:]...), " "),
		"Date":    r.began.UTC().Format("2006-01-02 15:04 MST"),
		"Took":    time.Since(r.began).Round(time.Second),
		"CPU":     cpuModel(), "Processors": runtime.NumCPU(), "Kernel": output(ctx, "uname", "-r"), "Load": r.load,
		"Topology": r.cfg.topology, "Ranks": r.ranks, "Rounds": r.now + 1, "Limit": bareMulticast,
		"OpenMPI": version(ctx, "openmpi-bin"), "MPICH": version(ctx, "mpich"),
	})
	return b.String(), err
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
