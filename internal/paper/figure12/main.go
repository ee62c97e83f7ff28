// Command figure12 reproduces the paper's Figure 12 on a network of namespaces: the traffic at the
// ports of 18 switches under 188 hosts, for multicast and for point-to-point algorithms. It needs
// root, and writes docs/figure12.md and two drawings beside it.
package main

import (
	_ "embed" // for the page
	"encoding/json"
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
	"github.com/allcast/allcast/internal/topology"
)

//go:embed page.md.tmpl
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// figures are the operations and the algorithms to compare, multicast first.
var figures = []struct {
	op    string
	algos []string
}{
	{"broadcast", []string{"mcast", "knomial", "binary"}},
	{"allgather", []string{"mcast", "ring"}},
}

// measured is a part of the output of "allcast perf".
type measured struct {
	Ranks    int   `json:"ranks"`
	Bytes    int64 `json:"bytes"`
	Wrong    int64 `json:"wrong"`
	Repaired int64 `json:"repaired_bytes"`
	Time     struct {
		P50 float64 `json:"p50"`
	} `json:"time_us"`
}

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
	for _, f := range figures {
		var files []string
		var first uint64
		for _, algo := range f.algos {
			file := filepath.Join(work, f.op+"-"+algo+".json")
			m, c, err := measure(allcast, file, spec, f.op, algo, size, iters)
			if err != nil {
				return err
			}
			if first == 0 {
				first = c.LinkBytes
			}
			minimum := float64(m.Bytes) * float64(iters) * float64(g.Tree(0).Links(0))
			if f.op == "allgather" {
				minimum *= float64(m.Ranks)
			}
			bytes := float64(c.LinkBytes)
			fmt.Fprintf(&rows, "| %s | %s | %.1f MB | %.3f | %.2f | %d bytes | %.0f ms |\n",
				f.op, algo, bytes/1e6, bytes/minimum, bytes/float64(first), m.Repaired, m.Time.P50/1e3)
			log.Printf("%s by %s: %d bytes on all links, %.3f times the minimum, after %v",
				f.op, algo, c.LinkBytes, bytes/minimum, time.Since(start).Round(time.Second))
			files = append(files, file)
		}
		drawing := filepath.Join(dir, "figure12-"+f.op+".html")
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
func measure(allcast, file, spec, op, algo, size string, iters int) (m measured, c lab.Counters, err error) {
	cmd := exec.Command(allcast, "lab", "run", "--topology", spec, "--json", "--",
		"allcast", "perf", op, "--algo", algo, "-b", size, "-n", fmt.Sprint(iters), "-w", "0", "--json")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "ALLCAST_TIMEOUT=120s")
	out, err := cmd.Output()
	if err != nil {
		return m, c, fmt.Errorf("%s by %s: %w: %s", op, algo, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 {
		return m, c, fmt.Errorf("%s by %s: printed %d lines, want 2", op, algo, len(lines))
	}
	if err := json.Unmarshal([]byte(lines[0]), &m); err != nil {
		return m, c, err
	}
	if err := json.Unmarshal([]byte(lines[1]), &c); err != nil {
		return m, c, err
	}
	if m.Wrong != 0 {
		return m, c, fmt.Errorf("%s by %s: %d bytes were wrong", op, algo, m.Wrong)
	}
	return m, c, os.WriteFile(file, out, 0o600)
}
