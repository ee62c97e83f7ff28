//go:build linux

package main

import (
	"context"
	_ "embed" // for the page
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/allcast/allcast/internal/lab"
)

//go:embed oversubscribed.md.tmpl
var oversubscribedText string

var oversubscribedTemplate = template.Must(template.New("oversubscribed").Parse(oversubscribedText))

// write prints the tables and writes the page.
func (b *oversubscribed) write(ctx context.Context) error {
	var page strings.Builder
	err := oversubscribedTemplate.Execute(&page, map[string]any{
		"Command": b.command(), "Date": b.began.UTC().Format("2006-01-02 15:04 MST"),
		"Took": time.Since(b.began).Round(time.Second),
		"CPU":  cpuModel(), "Processors": runtime.NumCPU(), "Kernel": output(ctx, "uname", "-r"), "Load": b.load,
		"OpenMPI": version(ctx, "openmpi-bin"),
		"Rate":    b.rate, "Ratio": b.ratio, "Bytes": b.bytes, "Rounds": b.rounds, "Placements": b.placements,
		"Iters": b.often.iters, "Warmup": b.often.warmup,
		"Table": b.table(), "Algorithms": b.algorithms(), "Pairs": b.pairs(), "Gaps": b.gaps,
		"Network": fsdpNetwork, "Ours": fsdpOurs, "Rings": fsdpRing, "Burst": 100 * b.burstShare(),
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(b.out, b.table()+"\n"+b.pairs()); err != nil || b.docs == "" {
		return err
	}
	return os.WriteFile(b.docs, []byte(page.String()), 0o644)
}

// burstShare is the largest share by which the burst of a port, which it may send at once after a pause, shortens an
// operation of the smallest network.
func (b *oversubscribed) burstShare() float64 {
	hosts := 0
	for _, spec := range b.networks {
		if p, err := lab.NewPlan(b.network(spec)); err == nil && (hosts == 0 || p.Graph.Hosts < hosts) {
			hosts = p.Graph.Hosts
		}
	}
	return lab.PortBurst / (float64(hosts-1) * float64(b.bytes))
}

// table returns the table of shares of line rate.
func (b *oversubscribed) table() string {
	if len(b.shares) == 0 {
		return ""
	}
	var shown []string
	for _, c := range columns {
		if b.selects(c) {
			shown = append(shown, c)
		}
	}
	var t strings.Builder
	fmt.Fprintf(&t, "| network | ranks | %s |\n|---|---|%s\n", strings.Join(shown, " | "),
		strings.Repeat("--:|", len(shown)))
	for _, spec := range b.networks {
		for _, random := range []bool{false, true} {
			name := ""
			if !random {
				name = b.describe(spec)
			}
			fmt.Fprintf(&t, "| %s | %s |", name, placementName(random))
			for _, c := range shown {
				fmt.Fprintf(&t, " %s |", percent(b.shares[cell{spec, random, c}]))
			}
			t.WriteByte('\n')
		}
	}
	return t.String()
}

// percent formats the median of some shares, with their minimum and maximum.
func percent(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f-%.0f) %%", 100*median(values), 100*slices.Min(values), 100*slices.Max(values))
}

// describe describes a network for readers.
func (b *oversubscribed) describe(spec string) string {
	p, err := lab.NewPlan(b.network(spec))
	if err != nil {
		return spec // it was checked
	}
	leaf := p.Nodes[p.Graph.Hosts]
	hosts, uplinks, multiple := 0, 0, 0.
	for _, port := range leaf.Ports {
		if port.Up {
			uplinks++
			multiple = port.Multiple
		} else {
			hosts++
		}
	}
	plural := "s"
	if uplinks == 1 {
		plural = ""
	}
	rate := "host rate"
	if multiple != 1 {
		rate = fmt.Sprintf("%g times the host rate", multiple)
	}
	return fmt.Sprintf("`%s`: %d hosts, %d per leaf, %d uplink%s at %s", spec, p.Graph.Hosts, hosts, uplinks, plural, rate)
}

// algorithms lists the peer's best algorithms.
func (b *oversubscribed) algorithms() (lines []string) {
	for _, spec := range b.networks {
		for _, random := range []bool{false, true} {
			if a := b.best[cell{spec, random, bestColumn}]; a != "" {
				lines = append(lines, fmt.Sprintf("`%s`, ranks %s: %s", spec, placementName(random), algorithmName(gatherOp, a)))
			}
		}
	}
	return lines
}

// pairs returns the table of the pattern of FSDP.
func (b *oversubscribed) pairs() string {
	if len(b.fsdp) == 0 {
		return ""
	}
	var ours, rings []float64
	for _, p := range b.fsdp {
		ours, rings = append(ours, p.ours/1e3), append(rings, p.rings/1e3)
	}
	return fmt.Sprintf("| network | ranks | %s, in ms | %s, in ms | times as fast |\n|---|---|--:|--:|--:|\n"+
		"| `%s` | %s | %s | %s | %s |\n",
		fsdpOurs, fsdpRing, fsdpNetwork, placementName(true), spread(ours), spread(rings), spread(ratios(b.fsdp)))
}
