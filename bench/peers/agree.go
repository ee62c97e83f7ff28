//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/launch"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// What the lab, the simulator and the model must agree on.
const (
	agreeBytes  = 256 << 10 // per rank
	agreeChunk  = 8 << 10   // divides the block of every subgroup, so that all datagrams have the same length
	agreeIters  = 3
	agreeWarmup = 2
	agreeHashes = 32 // hashed routes that the lab is compared with

	// Every TCP packet has an Ethernet header, an IP header, and a TCP header with timestamps. A super-packet counts with
	// one set of headers.
	tcpHeaders = 14 + 20 + 32
	// Point-to-point payload of the lab includes the headers of our messages, barriers and heartbeats.
	payloadTolerance = 0.01
	shareTolerance   = 0.1
)

// agreement is one network, placement and algorithm.
type agreement struct {
	graph     *topology.Graph
	placement string
	algo      string
	subgroups int

	payload                     []float64 // by link, per operation, in the lab
	labShare, simShare, modeled float64   // shares of line rate
	simulated, counted          []uint64  // payload by link in the simulator and in the model
}

// agree compares the lab with the simulator and the model, and prints a table.
func (b *oversubscribed) agree(ctx context.Context) error {
	var errs []error
	_, err := io.WriteString(b.out, "| network | ratio | ranks | algorithm | lab | simulator | model | payload |\n"+
		"|---|--:|---|---|--:|--:|--:|---|\n")
	if err != nil {
		return err
	}
	for _, spec := range b.networks {
		for _, ratio := range []float64{1, b.ratio} {
			for _, placement := range []string{"order", "random:1", "stride:4"} {
				bad, err := b.agreeOn(ctx, spec, placement, ratio)
				if err != nil {
					return err
				}
				errs = append(errs, bad)
			}
		}
	}
	return errors.Join(errs...)
}

// agreeOn compares one placement. The error bad says what disagrees.
func (b *oversubscribed) agreeOn(ctx context.Context, spec, placement string, ratio float64) (bad, err error) {
	network := b.network(spec)
	network.Oversubscribe = ratio
	g, err := topology.Parse(spec)
	if err != nil {
		return nil, err
	}
	if network.Placement, err = topology.ParsePlacement(placement, g.Hosts, nil); err != nil {
		return nil, err
	}
	err = b.within(ctx, network, func() error {
		for _, algo := range []string{"mcast", "ring"} {
			a := &agreement{
				graph: b.bed.lab.Plan.Graph, placement: placement, algo: algo, subgroups: len(b.bed.lab.Plan.Groups),
			}
			if err := b.inLab(ctx, a); err != nil {
				return fmt.Errorf("%s, %s, %s: %w", spec, placement, algo, err)
			}
			if err := b.elsewhere(a); err != nil {
				return fmt.Errorf("%s, %s, %s: %w", spec, placement, algo, err)
			}
			verdict := a.check()
			if verdict != nil {
				bad = errors.Join(bad, fmt.Errorf("%s, %v:1, %s, %s: %w", spec, ratio, placement, algo, verdict))
			}
			_, err := fmt.Fprintf(b.out, "| `%s` | %v | %s | %s | %.1f %% | %.1f %% | %.1f %% | %s |\n", spec, ratio, placement,
				algo, 100*a.labShare, 100*a.simShare, 100*a.modeled, a.payloadText())
			if err != nil {
				return err
			}
		}
		return nil
	})
	return bad, err
}

// elsewhere runs the same operation in the simulator and in the model.
func (b *oversubscribed) elsewhere(a *agreement) error {
	load := model.Workload{Bytes: agreeBytes, Rate: float64(b.rate), Subgroups: a.subgroups, Chunk: agreeChunk}
	g, m, err := a.routed(load)
	if err != nil {
		return err
	}
	r, err := sim.Run(sim.Config{
		Op: gatherOp, Algo: a.algo, Topology: g, Bytes: agreeBytes, Timeout: 10 * time.Second, Seed: 1,
		Schedule: sim.Schedule{Chains: g.Hosts, Subgroups: a.subgroups, ChainBy: "rank", Chunk: agreeChunk},
		Network: sim.Network{
			Rate: float64(b.rate), Latency: time.Microsecond, Flow: "none", Queue: lab.DefaultQueue, Tokens: true,
		},
	})
	if err != nil {
		return err
	}
	if !r.Verified {
		return fmt.Errorf("simulated: not verified: %+v", r.Errors)
	}
	a.simShare, a.modeled = r.LineRateShare, m.LineRateShare
	a.simulated, a.counted = r.PayloadByLink, m.PayloadByLink
	return nil
}

// routed returns the network with routes as those of the lab, and the model's traffic. The lab hashes routes, and how
// many flows share a link is a matter of luck. Of some hashes, routed takes the one whose busiest link is loaded most
// like that of the lab.
func (a *agreement) routed(load model.Workload) (best *topology.Graph, traffic model.Traffic, err error) {
	want := a.busiest(func(l int) float64 { return a.payload[l] })
	nearest := math.Inf(1)
	for seed := range agreeHashes {
		g, err := a.graph.WithRouting(fmt.Sprintf("hash:%d", seed+1))
		if err != nil {
			return nil, traffic, err
		}
		t, err := model.AlgorithmTraffic(g, p2p.Allgather, a.algo, load)
		if err != nil {
			return nil, traffic, err
		}
		distance := math.Abs(a.busiest(func(l int) float64 { return float64(t.PayloadByLink[l]) }) - want)
		if distance < nearest {
			nearest, best, traffic = distance, g, t
		}
	}
	return best, traffic, nil
}

// busiest returns the load of the link that takes the longest for its bytes.
func (a *agreement) busiest(bytes func(link int) float64) (load float64) {
	for l, link := range a.graph.Links {
		load = max(load, bytes(l)/link.Multiple)
	}
	return load
}

// inLab runs the operation in the lab, and counts its payload on each link.
func (b *oversubscribed) inLab(ctx context.Context, a *agreement) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp(b.bed.dir, "gather-")
	if err != nil {
		return err
	}
	job, err := json.Marshal(gatherJob{a.algo, agreeBytes, agreeChunk, agreeWarmup, agreeIters, dir})
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- launch.Run(ctx, launch.Config{
			Ranks: b.bed.ranks,
			Command: []string{
				b.bed.allcast, "lab", "enter", b.bed.lab.Plan.Config.Name, "--", b.bed.self, "gather", string(job),
			},
			Stdout: &stdout, Stderr: &stderr,
			Prefix: func(int, bool) string { return "" },
		})
		cancel()
	}()
	before, err := b.readAt(ctx, dir, joined)
	var after *lab.Counters
	if err == nil {
		after, err = b.readAt(ctx, dir, done)
	}
	if failed := <-ended; failed != nil {
		return fmt.Errorf("%w: %s", failed, lastLine(stderr.Bytes()))
	}
	if err != nil {
		return err
	}
	var times []float64
	if err := json.Unmarshal(stdout.Bytes(), &times); err != nil {
		return fmt.Errorf("the times of iterations: %w: %s", err, stdout.String())
	}
	a.labShare = float64(b.bed.ranks-1) * agreeBytes * 8e6 / float64(b.rate) / median(times)
	return a.count(after.Sub(before))
}

// readAt reads the counters at a moment of the job.
func (b *oversubscribed) readAt(ctx context.Context, dir, moment string) (*lab.Counters, error) {
	if err := awaitFile(ctx, filepath.Join(dir, moment)); err != nil {
		return nil, err
	}
	// Datagrams of the last probe or of the last operation may still be on their way to ranks that have them already.
	last, err := b.bed.lab.Counters()
	for err == nil {
		time.Sleep(20 * time.Millisecond)
		var next *lab.Counters
		if next, err = b.bed.lab.Counters(); err == nil && next.McastLinkBytes == last.McastLinkBytes {
			return next, os.WriteFile(filepath.Join(dir, moment+"-read"), nil, 0o644)
		}
		last = next
	}
	return nil, err
}

// count converts counters of ports into payload by link.
func (a *agreement) count(c *lab.Counters) error {
	var ports []report.Port
	for _, p := range c.Ports {
		q := report.Port{Switch: p.Switch, Port: p.Port, Rx: p.McastRx, Tx: p.McastTx}
		if a.algo != "mcast" {
			q.Rx, q.Tx = p.Rx-tcpHeaders*p.RxPackets, p.Tx-tcpHeaders*p.TxPackets
		}
		ports = append(ports, q)
	}
	bytes, err := report.FromPorts(a.graph, ports)
	if err != nil {
		return err
	}
	scale := 1.0 / agreeIters
	if a.algo == "mcast" {
		scale *= agreeChunk / float64(agreeChunk+wire.HeaderSize)
	}
	for _, n := range bytes {
		a.payload = append(a.payload, float64(n)*scale)
	}
	return nil
}

// check returns an error that says what disagrees.
func (a *agreement) check() error {
	var errs []error
	for _, other := range []struct {
		name    string
		share   float64
		payload []uint64
	}{{"simulator", a.simShare, a.simulated}, {"model", a.modeled, a.counted}} {
		if math.Abs(other.share-a.labShare) > shareTolerance {
			errs = append(errs, fmt.Errorf("%.1f %% of line rate in the lab, %.1f %% in the %s", 100*a.labShare,
				100*other.share, other.name))
		}
		if a.algo == "mcast" {
			errs = append(errs, a.checkLinks(other.name, other.payload))
		} else {
			errs = append(errs, a.checkTiers(other.name, other.payload))
		}
	}
	return errors.Join(errs...)
}

// checkLinks compares every link exactly.
func (a *agreement) checkLinks(name string, want []uint64) error {
	for l, n := range a.payload {
		if math.Abs(n-float64(want[l])) > 0.5 {
			link := a.graph.Links[l]
			return fmt.Errorf("%.1f bytes from %s to %s in the lab, %d in the %s", n, a.graph.NodeName(link.From),
				a.graph.NodeName(link.To), want[l], name)
		}
	}
	return nil
}

// checkTiers compares the sums of tiers.
func (a *agreement) checkTiers(name string, want []uint64) error {
	sums := a.graph.ByTier(want)
	for tier, n := range a.tiers() {
		if r := n / float64(sums[tier]); sums[tier] == 0 && n > 0 || r < 1 || r > 1+payloadTolerance {
			return fmt.Errorf("%.0f bytes of payload on tier %s in the lab, %d in the %s", n, tier, sums[tier], name)
		}
	}
	return nil
}

// tiers returns the payload of the lab by tier.
func (a *agreement) tiers() map[string]float64 {
	sums := map[string]float64{}
	for l, n := range a.payload {
		sums[a.graph.Tier(topology.LinkID(l))] += n
	}
	return sums
}

// payloadText describes the payload for the table.
func (a *agreement) payloadText() string {
	if a.algo == "mcast" {
		if err := errors.Join(a.checkLinks("simulator", a.simulated), a.checkLinks("model", a.counted)); err != nil {
			return strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		return fmt.Sprintf("the same on all %d links", len(a.payload))
	}
	sums := a.graph.ByTier(a.simulated)
	var parts []string
	for _, tier := range []string{"host_up", "host_down", "leaf_up", "leaf_down"} {
		if sums[tier] > 0 {
			parts = append(parts, fmt.Sprintf("%s %+.2f %%", tier, 100*(a.tiers()[tier]/float64(sums[tier])-1)))
		}
	}
	return strings.Join(parts, ", ")
}
