package paper

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/topology"
)

// pageEnv is the Env for pages: everything that the simulator can do, and progress on stderr.
func pageEnv() *Env {
	return &Env{Seed: 1, Progress: func(done float64, what string) {
		fmt.Fprintf(os.Stderr, "%3.0f %% %s\n", 100*done, what)
	}}
}

// collectives compares multicast with the algorithms that libraries use today, on the
// paper's testbed: claims C2, C8, C9 and C10.
func collectives() (string, error) {
	return render("collectives.md.tmpl", comparison{mustParse(Testbed), pageEnv()})
}

// comparison has a method for each table of the page.
type comparison struct {
	*topology.Graph
	env *Env
}

// Broadcast compares the times of a Broadcast, and names the best algorithm beside multicast.
func (c comparison) Broadcast() (string, error) {
	all, err := rankedBroadcasts(context.Background(), c.env)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	ref := all[0]
	for _, r := range all {
		segment := "-"
		if r.Segment > 0 {
			segment = kib(r.Segment)
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f | %.0f | %.2f |\n", r.Algo, segment, r.TimeUS, r.TimeUS/ref.TimeUS,
			float64(r.PayloadLinkBytes)/rankedBytes, float64(r.PayloadLinkBytes)/float64(ref.PayloadLinkBytes))
	}
	best := bestTree(all)
	fmt.Fprintf(&b, "\nThe best point-to-point algorithm, %s, takes %.2f times as long as multicast.",
		best.Algo, best.TimeUS/ref.TimeUS)
	return b.String(), nil
}

// Throughput returns the data of Figure 11.
func (c comparison) Throughput() (*throughputs, error) {
	return measureThroughputs(context.Background(), c.env)
}

// Cells writes a table of an entry as rows of Markdown.
func (comparison) Cells(t Table) string {
	var b strings.Builder
	for _, row := range t.Rows {
		for _, cell := range row {
			if x, ok := cell.(float64); ok {
				cell = fmt.Sprintf("%.4g", x)
				if x >= 1000 {
					cell = fmt.Sprintf("%.0f", x)
				}
			}
			fmt.Fprintf(&b, "| %v ", cell)
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// Schedules, Costs, Fits and Curves are the tables about the factors of Figure 11.
func (c comparison) Schedules() (Table, error) { return c.table(rivalTable) }
func (c comparison) Costs() (Table, error)     { return c.table(sweepTable) }
func (c comparison) Fits() (Table, error)      { return c.table(fitTable) }
func (c comparison) Curves() (Table, error) {
	return c.table(func(t *throughputs) Table { return throughputTable("", t) })
}

func (c comparison) table(of func(*throughputs) Table) (Table, error) {
	t, err := c.Throughput()
	if err != nil {
		return Table{}, err
	}
	return of(t), nil
}

// FactorReason says what the paper's factors depend on.
func (c comparison) FactorReason() (string, error) {
	t, err := c.Throughput()
	if err != nil {
		return "", err
	}
	return factorReason(t), nil
}

// Allgather compares multicast with a ring.
func (c comparison) Allgather() (string, error) {
	all, err := levels(context.Background(), c.env)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	model := float64(c.RingTraversals()) / float64(c.TreeTraversals())
	for _, l := range all {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.3f | %.4f | %.4f |\n",
			kib(l.Bytes), l.Mcast.TimeUS, l.Ring.TimeUS, l.Mcast.TimeUS/l.Ring.TimeUS,
			float64(l.Ring.PayloadLinkBytes)/float64(l.Mcast.PayloadLinkBytes), model)
	}
	return b.String(), nil
}

// SlowReceiver is the cost of a received chunk of "slow receivers".
func (comparison) SlowReceiver() time.Duration { return slowReceiver }

// Causes lists the causes of variation.
func (comparison) Causes() []cause { return causes }

// Variation writes the table of one cause, and whether claim C9 holds for it.
func (c comparison) Variation(of cause) (string, error) {
	all, err := variations(context.Background(), c.env)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range all {
		if s.Cause == of.Name {
			fmt.Fprintf(&b, "| %s %s | %s | %.0f | %.0f | %.1f | %.2f |\n",
				s.Op, kib(s.Bytes), s.Name, s.Mean, s.Range, s.Deviation, s.Relative())
		}
	}
	for _, m := range contenders {
		if !m.multicast() {
			continue
		}
		answer := "does not hold"
		if holds, _ := lessThan(all, of.Name, m); holds {
			answer = "holds"
		}
		fmt.Fprintf(&b, "\nFor %s by %s, the claim %s.", m.Op, m.Name, answer)
	}
	return b.String(), nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Together measures claim C2, Appendix B.
func (c comparison) Together() (string, error) {
	runs, err := pairRuns(context.Background(), c.env)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, "| %d | %s | %.0f | %.3f | %.3f | %.0f + %.0f | %.0f + %.0f |\n",
			r.Ranks, r.Pair, r.TimeUS, r.Speedup, r.Formula(),
			r.SentBlocks(0), r.SentBlocks(1), r.ReceivedBlocks(0), r.ReceivedBlocks(1))
	}
	return b.String(), nil
}
