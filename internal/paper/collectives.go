package paper

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// collectives compares multicast with the algorithms that libraries use today, on the
// paper's testbed: claims C2, C8, C9 and C10.
func collectives() (string, error) {
	g, err := topology.Parse(Testbed)
	if err != nil {
		return "", err
	}
	return render("collectives.md.tmpl", comparison{g, 20 * time.Microsecond, 5 * time.Microsecond})
}

// comparison has a method for each table of the page.
type comparison struct {
	*topology.Graph
	Detour, Delay time.Duration // the two kinds of noise, see sim.Config
}

// simulate runs one collective on the testbed's links, verified.
func simulate(cfg sim.Config) (*sim.Result, error) {
	cfg.Chunk, cfg.Subgroups, cfg.Rate, cfg.Latency = 4096, 1, 56e9, 500*time.Nanosecond
	r, err := sim.Run(cfg)
	if err != nil {
		return nil, err
	}
	if !r.Verified || r.Algo != cfg.Algo {
		return nil, fmt.Errorf("%s by %s: not verified", cfg.Op, cfg.Algo)
	}
	fmt.Fprintf(os.Stderr, "%s %s %d segment %d seed %d: %.0f us\n",
		cfg.Op, cfg.Algo, cfg.Bytes, cfg.Segment, cfg.Seed, r.TimeUS)
	return r, nil
}

func run(g *topology.Graph, op, algo string, bytes, segment int64) (*sim.Result, error) {
	return simulate(sim.Config{
		Op: op, Algo: algo, Topology: g, Bytes: bytes, Schedule: sim.Schedule{Segment: segment}, Seed: 1,
	})
}

// fastest runs a collective with several segment sizes.
func fastest(g *topology.Graph, op, algo string, bytes int64, segments ...int64) (*sim.Result, int64, error) {
	var best *sim.Result
	var with int64
	for _, s := range segments {
		r, err := run(g, op, algo, bytes, s)
		if err != nil {
			return nil, 0, err
		}
		if best == nil || r.TimeUS < best.TimeUS {
			best, with = r, s
		}
	}
	return best, with, nil
}

// Broadcast compares the times of a Broadcast, and names the best algorithm beside multicast.
func (c comparison) Broadcast() (string, error) {
	const bytes = 1 << 20
	var b strings.Builder
	var ref *sim.Result
	bestTime, bestAlgo := math.Inf(1), ""
	for _, algo := range sim.Algorithms["broadcast"] {
		segments := []int64{0, 4 << 10, 16 << 10, 64 << 10, 256 << 10}
		if algo == "mcast" {
			segments = segments[:1]
		}
		best, with, err := fastest(c.Graph, "broadcast", algo, bytes, segments...)
		if err != nil {
			return "", err
		}
		if ref == nil {
			ref = best
		} else if best.TimeUS < bestTime {
			bestTime, bestAlgo = best.TimeUS, algo
		}
		segment := "-"
		if with > 0 {
			segment = fmt.Sprintf("%d KiB", with>>10)
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f | %.0f | %.2f |\n", algo, segment, best.TimeUS, best.TimeUS/ref.TimeUS,
			float64(best.PayloadLinkBytes)/bytes, float64(best.PayloadLinkBytes)/float64(ref.PayloadLinkBytes))
	}
	fmt.Fprintf(&b, "\nThe best point-to-point algorithm, %s, takes %.2f times as long as multicast.",
		bestAlgo, bestTime/ref.TimeUS)
	return b.String(), nil
}

// Allgather compares multicast with a ring.
func (c comparison) Allgather() (string, error) {
	var b strings.Builder
	model := float64(c.RingTraversals()) / float64(c.TreeTraversals())
	for _, bytes := range []int64{64 << 10, 128 << 10, 256 << 10} {
		m, err := run(c.Graph, "allgather", "mcast", bytes, 0)
		if err != nil {
			return "", err
		}
		ring, _, err := fastest(c.Graph, "allgather", "ring", bytes, 0, 16<<10, 64<<10)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %d KiB | %.0f | %.0f | %.3f | %.4f | %.4f |\n",
			bytes>>10, m.TimeUS, ring.TimeUS, m.TimeUS/ring.TimeUS,
			float64(ring.PayloadLinkBytes)/float64(m.PayloadLinkBytes), model)
	}
	return b.String(), nil
}

// Stopped measures claim C9 with hosts that stop at times.
func (c comparison) Stopped() (string, error) {
	return c.vary(sim.Config{Faults: sim.Faults{Detour: c.Detour}})
}

// Delayed measures claim C9 with hosts that react late.
func (c comparison) Delayed() (string, error) {
	return c.vary(sim.Config{Faults: sim.Faults{Noise: c.Delay}})
}

// vary writes the table and the verdicts for one kind of noise.
func (c comparison) vary(cfg sim.Config) (string, error) {
	const seeds = 10
	const allAtOnce = "mcast, all at once"
	var b strings.Builder
	b.WriteString("| operation | algorithm | mean | max - min | standard deviation, us |\n|---|---|--:|--:|--:|\n")
	var verdicts []string
	for _, o := range []struct {
		op    string
		bytes int64
		algos []string
	}{
		{"broadcast", 1 << 20, []string{"mcast", "binomial", "knomial", "binary", "chain", "scatter-allgather"}},
		{"allgather", 64 << 10, []string{"mcast", allAtOnce, "ring"}},
	} {
		deviation := map[string]float64{}
		for _, algo := range o.algos {
			cfg.Op, cfg.Algo, cfg.Topology, cfg.Bytes, cfg.Chains = o.op, algo, c.Graph, o.bytes, 1
			if algo == allAtOnce {
				cfg.Algo, cfg.Chains = "mcast", c.Hosts
			}
			var sum, squares, slowest float64
			quickest := math.Inf(1)
			for cfg.Seed = 1; cfg.Seed <= seeds; cfg.Seed++ {
				r, err := simulate(cfg)
				if err != nil {
					return "", err
				}
				sum, squares = sum+r.TimeUS, squares+r.TimeUS*r.TimeUS
				quickest, slowest = min(quickest, r.TimeUS), max(slowest, r.TimeUS)
			}
			mean := sum / seeds
			deviation[algo] = math.Sqrt(max(0, squares/seeds-mean*mean))
			fmt.Fprintf(&b, "| %s %d KiB | %s | %.0f | %.0f | %.1f |\n",
				o.op, o.bytes>>10, algo, mean, slowest-quickest, deviation[algo])
		}
		best := "mcast"
		if d, ok := deviation[allAtOnce]; ok && d < deviation[best] {
			best = allAtOnce
		}
		var more, less []string
		for _, algo := range o.algos {
			switch {
			case strings.HasPrefix(algo, "mcast"):
			case deviation[algo] > deviation[best]:
				more = append(more, algo)
			default:
				less = append(less, algo)
			}
		}
		verdicts = append(verdicts, fmt.Sprintf("%s: %s varies less than %s;\n  not less than: %s.",
			o.op, best, list(more), list(less)))
	}
	fmt.Fprintf(&b, "\nOver %d seeds:\n\n- %s\n", seeds, strings.Join(verdicts, "\n- "))
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
	const bytes = 1 << 20
	var b strings.Builder
	for _, p := range []int{4, 8, 16, 64, c.Hosts} {
		g, pairs := c.Graph, []string{"ring+ring", "mcast+inc"}
		if p != c.Hosts {
			var err error
			if g, err = topology.Parse(fmt.Sprintf("star:%d", p)); err != nil {
				return "", err
			}
			pairs = []string{"ring+ring", "mcast+ring", "ring+inc", "mcast+inc"}
		}
		var ref float64
		for _, pair := range pairs {
			r, err := run(g, "allgather+reduce-scatter", pair, bytes, 0)
			if err != nil {
				return "", err
			}
			if ref == 0 {
				ref = r.TimeUS
			}
			ag, rs := r.Parts[0], r.Parts[1]
			fmt.Fprintf(&b, "| %d | %s | %.0f | %.3f | %.3f | %.0f + %.0f | %.0f + %.0f |\n",
				p, pair, r.TimeUS, ref/r.TimeUS, 2-2/float64(p),
				float64(ag.Sent)/bytes, float64(rs.Sent)/bytes, float64(ag.Received)/bytes, float64(rs.Received)/bytes)
		}
	}
	return b.String(), nil
}
