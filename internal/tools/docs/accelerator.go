package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/allcast/allcast/internal/model/dpa"
)

// accelerator is claims C11 to C14: the model beside Table I and Figures 13 to 16.
func accelerator(file string) error {
	tables, err := dpa.Compare()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(acceleratorIntro)
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.Title, strings.Join(t.Notes, "\n"))
		markdown(&b, t.Columns, t.Rows)
	}
	b.WriteString("\n## Every parameter\n\nOnly what is marked as fitted was chosen to meet a figure; it is off by default.\n\n")
	var rows [][]string
	for _, p := range dpa.Parameters() {
		rows = append(rows, []string{p.Name, p.Value, string(p.Kind), p.Source})
	}
	markdown(&b, []string{"what", "value", "from", "source"}, rows)
	b.WriteString(acceleratorOutro)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func markdown(b *strings.Builder, columns []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

const acceleratorIntro = `# The accelerator's receive path, modelled

Made by ` + "`make docs PAGES=docs/dpa.md`" + `; ` + "`allcast model dpa --table`" + ` prints the same. Nothing here was measured on a NIC: it is a model (` + "`internal/model/dpa`" + `), beside what
the paper measured on one.

The model executes the receive kernel as a trace: instructions, then an access to memory, again and again until a chunk is done. A core issues one
instruction a cycle for whichever of its 16 threads asked first; while a thread waits for memory, others issue. Chunks arrive at the link's rate, in turn for each
thread's connection; a thread polls its completion queue, and a chunk that finds no posted receive is dropped. With UD a thread also waits until the DMA has
read the chunk out of staging.

It is calibrated on Table I, with one thread. What it says about more threads, other buffers and other chunks is a prediction; misses are marked.

What to take from it:

- The missing time of UD in Table I (1084 cycles would be 6.3 GiB/s, the table has 5.2) is what 4 KiB take on PCIe 4.0 x16: 224 to 249
  cycles are missing, the link takes 234. That is an explanation, not the only one.
- Five accesses for UC and nine for UD, each of about 107 cycles, explain the cycles of both kernels.
- If nothing but one instruction a cycle and core were the limit, 48.8 M chunks/s would take 2 cores (UC) or 4 (UD). The paper used 8. If it needed them, accesses to memory hold each other up, by some 30 cycles each. That is a fit to one number, not a finding.
`

const acceleratorOutro = `
## In the simulator

` + "`allcast sim broadcast --topology star:8 --datapath dpa:ud,threads=4,queue=256 --rate 200gbit`" + ` gives every host such a receive side: it takes chunks from a queue
of that many (8192 unless told) at the pace at which the model's threads do when there is always a chunk to take. What finds the queue full is dropped, and repaired as any loss.
The pace is one number for all threads together: how they share a core is in it, the order in which they finish is not.

## Left out

Caches beyond one latency, the NIC's own limits on messages a second, and the arbitration between communicators. The CPU core that the paper compares with (C12, C15) is in [offload.md](offload.md), measured.
`
