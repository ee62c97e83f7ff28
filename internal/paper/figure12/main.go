// Command figure12 reproduces the paper's Figure 12 on a network of namespaces: the traffic at the
// ports of 18 switches under 188 hosts, for multicast and for point-to-point algorithms. It needs
// root, and writes docs/figure12.md and two drawings beside it.
package main

import (
	"context"
	_ "embed" // for the page
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/paper"
	"github.com/allcast/allcast/internal/topology"
)

//go:embed page.md.tmpl
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

func main() {
	log.SetFlags(0)
	t := flag.String("topology", "fat-tree:188,12,6", "network")
	size := flag.String("bytes", "64K", "bytes that one rank sends")
	iters := flag.Int("n", 10, "iterations")
	dir := flag.String("docs", "docs", "directory for the page and the drawings")
	flag.Parse()
	if err := run(*t, *size, *iters, *dir); err != nil {
		log.Fatal(err)
	}
}

func run(spec, size string, iters int, dir string) error {
	g, err := topology.Parse(spec)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "figure12-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	allcast := filepath.Join(work, "allcast")
	if out, err := exec.Command("go", "build", "-o", allcast, "./cmd/allcast").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	start := time.Now()
	var rows, b strings.Builder
	for _, f := range paper.Figure12 {
		var files []string
		var first uint64
		for _, algo := range f.Algos {
			file := filepath.Join(work, f.Op+"-"+algo+".json")
			m, c, err := measure(allcast, file, spec, f.Op, algo, size, iters)
			if err != nil {
				return err
			}
			if first == 0 {
				first = c.LinkBytes
			}
			minimum := float64(m.Bytes) * float64(iters) * float64(g.Tree(0).Links(0))
			if f.Op == "allgather" {
				minimum *= float64(m.Ranks)
			}
			bytes := float64(c.LinkBytes)
			fmt.Fprintf(&rows, "| %s | %s | %.1f MB | %.3f | %.2f | %d bytes | %.0f ms |\n",
				f.Op, algo, bytes/1e6, bytes/minimum, bytes/float64(first), m.Repaired, m.Time.P50/1e3)
			log.Printf("%s by %s: %d bytes on all links, %.3f times the minimum, after %v",
				f.Op, algo, c.LinkBytes, bytes/minimum, time.Since(start).Round(time.Second))
			files = append(files, file)
		}
		drawing := filepath.Join(dir, "figure12-"+f.Op+".html")
		out, err := exec.Command(allcast, append([]string{"lab", "report", "--html", drawing}, files...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	err = page.Execute(&b, map[string]any{
		"Topology": spec, "Size": size, "Iterations": iters, "Hosts": g.Hosts, "Processors": runtime.NumCPU(),
		"Date": start.UTC().Format("2006-01-02"), "Rows": rows.String(), "Took": time.Since(start).Round(time.Second),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "figure12.md"), []byte(b.String()), 0o644)
}

// measure runs one algorithm in a lab of its own.
func measure(allcast, file, spec, op, algo, size string, iters int) (m paper.LabRun, c lab.Counters, err error) {
	r, err := paper.RunInLab(context.Background(), allcast, []string{"--topology", spec},
		[]string{op, "--algo", algo, "-b", size, "-n", fmt.Sprint(iters), "-w", "0"})
	if err != nil {
		return m, c, err
	}
	return r.Runs[0], r.Counters, os.WriteFile(file, r.Text, 0o600)
}
