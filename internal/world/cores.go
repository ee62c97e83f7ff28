package world

import (
	"hash/fnv"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/settings"
)

// machineID identifies this machine among those of the job, across containers and network namespaces; 0
// if the system does not tell. It fits a JSON number exactly.
func machineID() uint64 {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(boot)
	return h.Sum64() >> 32
}

// sharing returns, by rank, the number of ranks on its machine.
func sharing(cards []card) []string {
	here := map[uint64]int{}
	for _, c := range cards {
		here[c.Machine]++
	}
	here[0] = 1 // a machine that the system does not name
	all := make([]string, len(cards))
	for r, c := range cards {
		all[r] = strconv.Itoa(here[c.Machine])
	}
	return all
}

// cores is the number of processors that a rank's workers may keep busy: what Go may use, but no more than
// the rank's share of a machine with some ranks. A user who sets GOMAXPROCS has decided that.
func cores(ranks int) int {
	n := runtime.GOMAXPROCS(0)
	if settings.Process.Get("GOMAXPROCS") != "" {
		return n
	}
	return max(1, min(n, processors()/max(1, ranks)))
}

// processors is the number of processors of the machine. This process may be bound to fewer.
func processors() int {
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if n := countList(strings.TrimSpace(string(online))); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// countList counts the numbers of a list such as 0-3,8; 0: it is not such a list.
func countList(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || lo < 0 || hi < lo {
			return 0
		}
		n += hi - lo + 1
	}
	return n
}
