package paper

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/model/dpa"
)

// accelerator compares the model with Table I and Figures 13 to 16: claims C11 to C14.
func accelerator() (string, error) {
	tables, err := dpa.Compare()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(acceleratorIntro)
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.Title, strings.Join(t.Notes, "\n"))
		markdown(&b, t.Columns, t.Rows)
	}
	b.WriteString("\n## Every parameter\n\n" +
		"Only the parameter marked as fitted was chosen to meet a figure; it is off by default.\n\n")
	var rows [][]string
	for _, p := range dpa.Parameters() {
		rows = append(rows, []string{p.Name, p.Value, string(p.Kind), p.Source})
	}
	markdown(&b, []string{"what", "value", "from", "source"}, rows)
	b.WriteString(acceleratorOutro)
	return b.String(), nil
}

func markdown(b *strings.Builder, columns []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

const acceleratorIntro = `# The accelerator's receive path, modelled

` + "`make docs PAGES=docs/dpa.md`" + ` writes this page; ` + "`allcast model dpa --table`" + ` prints the same tables.
Nothing here was measured on a NIC: a model (` + "`internal/model/dpa`" + `) stands beside the paper's
measurements (claims C11 to C14).

The model executes the receive kernel as a trace: instructions and accesses to memory, until a chunk
is done. A core issues one instruction per cycle, for the thread that asked first of its 16. While a
thread waits for memory, others issue. Chunks arrive at the link's rate, round-robin over the
threads' connections. A thread polls its completion queue, and a chunk without a posted receive is
dropped. With UD a thread also waits until the DMA has read the chunk out of staging.

The model is calibrated on Table I, with one thread. Its results for more threads, other buffers and
other chunks are predictions; misses are marked.

What to take from it:

- In Table I, 1084 cycles of UD would be 6.3 GiB/s, but the table has 5.2. The missing 224 to 249
  cycles match the time of 4 KiB on PCIe 4.0 x16, which is 234 cycles. That is an explanation, not
  the only one.
- Five accesses for UC and nine for UD, each of about 107 cycles, explain both kernels' cycles.
- If one instruction per cycle and core were the only limit, 48.8 M chunks/s would take 2 cores (UC)
  or 4 (UD). The paper used 8. If it needed them, accesses to memory delay each other by some 30
  cycles. That is a fit to one number, not a finding.
`

const acceleratorOutro = `
## In the simulator

` + "`allcast sim broadcast --topology star:8 --datapath dpa:ud,threads=4,queue=256 --rate 200gbit`" + `
gives every host such a receive path. It takes chunks from a queue (8192 entries by default) at the
pace of the model's threads when chunks are always available. A full queue drops chunks, which are
repaired like any loss. The pace is one number for all threads together: it includes how they share
a core, but not the order in which they finish.

## Left out

Caches beyond one latency, the NIC's own limits on messages per second, and the arbitration between
communicators. The CPU core that the paper compares with (C12, C15) is measured in
[offload.md](offload.md).
`
