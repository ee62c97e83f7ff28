package bench

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// processors are the times of all processors of this machine since boot, in ticks.
type processors struct{ idle, total float64 }

// readProcessors reads the first line of Linux's /proc/stat. It returns zeros elsewhere.
func readProcessors() processors {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return parseProcessors(string(line))
}

// parseProcessors parses the sums over all processors (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq
// and steal. The rest is part of user.
func parseProcessors(line string) (p processors) {
	f := strings.Fields(line)
	for i := 1; i < min(len(f), 9); i++ {
		x, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return processors{}
		}
		p.total += x
		if i == 4 || i == 5 {
			p.idle += x
		}
	}
	return p
}

// idleUntil returns the share of idle time between two readings, in percent. It is negative if they do not differ: the
// time was shorter than a tick, or the system does not tell.
func (p processors) idleUntil(later processors) float64 {
	if later.total <= p.total {
		return -1
	}
	return 100 * min(1, max(0, later.idle-p.idle)/(later.total-p.total)) // iowait may decrease
}
