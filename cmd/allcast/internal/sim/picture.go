package sim

import (
	"fmt"
	"io"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/units"
)

// drawLinks writes the page of --html: the bytes on each link, per algorithm.
func drawLinks(e *cli.Env, w io.Writer, cfg sim.Config, results []*sim.Result) error {
	r := results[0]
	page := report.Page{
		Title:   linksTitle(r),
		Command: strings.Join(append([]string{"allcast"}, withoutFiles(e.Args)...), " "),
		Notes: fmt.Sprintf("Simulated, host links of %v, packets of %d bytes, flow control %s, seed %d.",
			units.Rate(cfg.Rate), r.Chunk, r.Flow, r.Seed),
		Op: r.Op, Bytes: uint64(r.Bytes), Graph: cfg.Topology,
	}
	for _, r := range results {
		page.Runs = append(page.Runs, report.Run{
			Name: r.Algo, Multicast: r.Algo == "mcast", LinkBytes: r.ByLink,
			PayloadLinkBytes: uint64(r.PayloadLinkBytes), Bound: uint64(r.LinkBytesBound),
			TimeUS: r.TimeUS, Repaired: uint64(r.RepairedChunks), Verified: r.Verified, Note: linksNote(r),
		})
	}
	return page.Write(w)
}

func linksTitle(r *sim.Result) string {
	title := strings.ToUpper(r.Op[:1]) + r.Op[1:]
	if r.Bytes > 0 {
		size := units.Size(r.Bytes).String()
		if number := strings.TrimRight(size, "KMGT"); number != size {
			title += fmt.Sprintf(" of %s %siB", number, size[len(number):])
		} else {
			title += fmt.Sprintf(" of %s bytes", size)
		}
	}
	return title + " on " + networkName(r.Subject)
}

// linksNote says what the numbers of a run do not show.
func linksNote(r *sim.Result) string {
	var notes []string
	if r.Auto != "" {
		notes = append(notes, "auto chose "+r.Auto+".")
	}
	if n := len(r.Errors); n > 0 {
		notes = append(notes, fmt.Sprintf("Failed on %d of %d ranks: %s.", n, r.Nodes, rankErrorLine(r.Errors[0])))
	}
	if r.Violation != "" {
		notes = append(notes, "It broke a rule: "+r.Violation+".")
	}
	return strings.Join(notes, " ")
}

// withoutFiles removes the flags that only name output files, so that the same simulation gives the same page.
func withoutFiles(args []string) (kept []string) {
	for i := 0; i < len(args); i++ {
		switch name, _, inline := strings.Cut(args[i], "="); name {
		case "--html", "--pcap":
			if !inline {
				i++ // its value
			}
		case "--json":
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
}
