package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/topology"
)

type reportCmd struct {
	HTML  string   `name:"html" required:"" placeholder:"FILE" help:"The page to write."`
	Files []string `arg:"" placeholder:"FILE"`
}

// FlagHelp implements cli.FlagHelp.
func (reportCmd) FlagHelp() map[string]string {
	return map[string]string{
		"files": "Output of \"allcast lab run --json -- allcast perf ... --json\", one file per run; the others are " +
			"compared with the first.",
	}
}

func (reportCmd) Help() string {
	return `One self-contained page: the network with each link coloured by the bytes that its ports counted, runs next
to each other. It needs no root.

Example:
  allcast lab run --topology fat-tree:8,2,2 --json -- allcast perf allgather --algo mcast -b 64K -w 0 --json >mcast.json
  allcast lab run --topology fat-tree:8,2,2 --json -- allcast perf allgather --algo ring -b 64K -w 0 --json >ring.json
  allcast lab report mcast.json ring.json --html links.html`
}

func (c *reportCmd) Run(e *cli.Env) error {
	var all []*report.Page
	for _, name := range c.Files {
		text, err := os.ReadFile(name)
		if err != nil {
			return cli.Usagef("%v", err)
		}
		p, err := runPage(text)
		if err != nil {
			return cli.Usagef("%s: %v", name, err)
		}
		all = append(all, p)
	}
	page, err := report.Merge(all...)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	out, err := cli.CreateFile(c.HTML, "the page")
	if err != nil {
		return err
	}
	defer out.Discard()
	if err := page.Write(out); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return err
	}
	e.Message("wrote %s", c.HTML)
	return nil
}

// runPage parses the output of one run: the line of perf, then the counters.
func runPage(text []byte) (*report.Page, error) {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != 2 {
		return nil, fmt.Errorf("%d lines: want one line of perf --json, for one algorithm and size, "+
			"and one of lab run --json", len(lines))
	}
	var p bench.Result
	var c lab.Counters
	if err := json.Unmarshal(lines[0], &p); err != nil || p.Op == "" {
		return nil, fmt.Errorf("the first line is not from perf: %w", errors.Join(err, errNoOp(p.Op)))
	}
	if err := json.Unmarshal(lines[1], &c); err != nil {
		return nil, fmt.Errorf("the second line is not from the lab: %w", err)
	}
	g, err := topology.Parse(c.Topology)
	if err != nil {
		return nil, err
	}
	placed := g
	if c.Placement != nil {
		if placed, err = g.Place(c.Placement); err != nil {
			return nil, err
		}
	}
	var ports []report.Port
	for _, q := range c.Ports {
		ports = append(ports, report.Port{Switch: q.Switch, Port: q.Port, Rx: q.Rx, Tx: q.Tx})
	}
	if c.Placement != nil {
		ports = append(ports, idlePorts(g, c.Placement)...)
	}
	counted, err := report.FromPorts(g, ports)
	if err != nil {
		return nil, err
	}
	runs := p.Iters + p.Warmup // the ports count both
	payload := p.Bytes * int64(runs)
	if p.Op == "allgather" {
		payload *= int64(p.Ranks)
	}
	return &report.Page{
		Title: fmt.Sprintf("%s of %d KiB, %d times, on %s",
			strings.ToUpper(p.Op[:1])+p.Op[1:], p.Bytes>>10, runs, c.Topology),
		Notes:   "Counted at the ports of the lab's switches; includes multicast, repair, control and joining.",
		Command: "allcast lab report",
		Op:      p.Op,
		Bytes:   uint64(p.Bytes),
		Graph:   g,
		Runs: []report.Run{{
			Name: p.Algo, Multicast: p.Algo == "mcast", LinkBytes: counted,
			Bound:  uint64(payload) * uint64(placed.Tree(0).Links(0)),
			TimeUS: p.Time.P50, Repaired: repairedChunks(&p), Verified: p.Wrong == 0,
		}},
	}, nil
}

// idlePorts returns the ports of hosts without a rank, which the lab does not have.
func idlePorts(g *topology.Graph, placement []int) (ports []report.Port) {
	for h := range g.Hosts {
		if !slices.Contains(placement, h) {
			leaf := g.Links[g.HostUp(h)].To
			ports = append(ports, report.Port{Switch: g.NodeName(leaf), Port: g.NodeName(topology.NodeID(h))})
		}
	}
	return ports
}

func errNoOp(op string) error {
	if op == "" {
		return errors.New("it has no operation")
	}
	return nil
}

// repairedChunks converts repaired bytes to chunks.
func repairedChunks(p *bench.Result) uint64 {
	if p.Chunk <= 0 {
		return 0
	}
	return uint64((p.RepairedBytes + int64(p.Chunk) - 1) / int64(p.Chunk))
}
