package settings

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/units"
)

const slurmStepSize = "SLURM_STEP_NUM_TASKS"

// inSlurmStep reports whether srun has started this process. The shell of an allocation has some of its
// variables. A batch script even has a rank, although it is no task of a step.
func inSlurmStep(v *reader) bool {
	if v.first("ENVIRONMENT") == "BATCH" && !v.has("SLURM_STEP_ID") && !v.has("SLURM_STEPID") {
		return false
	}
	return v.has(slurm.rank) && (v.has(slurmStepSize) || v.has(slurm.size))
}

// slurmLocalSize is the number of tasks on this node, or -1 if it is unknown.
func slurmLocalSize(v *reader, size int) int {
	const list, node = "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"
	if v.err != nil {
		return -1
	}
	if n := v.optional("SLURM_STEP_NUM_NODES", 1, MaxSize); n == 1 {
		return size
	}
	if !v.has(list) || !v.has(node) {
		return -1
	}
	s := v.env.Get(list)
	n, err := tasksOn(s, v.optional(node, 0, MaxSize-1))
	if err == nil && n > size {
		err = fmt.Errorf("%d tasks on one node, but only %d in the step", n, size)
	}
	if err != nil {
		v.fail("%s=%q: %w", list, s, err)
	}
	return n
}

// tasksOn returns the number of tasks on a node, from a list such as 2(x3),1.
func tasksOn(list string, node int) (int, error) {
	for item := range strings.SplitSeq(list, ",") {
		count, times := item, 1
		if c, x, ok := strings.Cut(item, "(x"); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(x, ")"), 10, 31)
			if err != nil || !strings.HasSuffix(x, ")") {
				return -1, fmt.Errorf("malformed %q", item)
			}
			count, times = c, int(n)
		}
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil || n == 0 {
			return -1, fmt.Errorf("malformed %q", item)
		}
		if node < times {
			return int(n), nil
		}
		node -= times
	}
	return -1, fmt.Errorf("no node %d", node)
}

// slurmHosts returns the list of hosts whose first host has rank 0, and its variable. Ranks that srun
// started use the list of their step. mpirun inside a Slurm job starts its daemons in steps that leave
// out its own node, so its ranks use the list of the job.
func slurmHosts(v *reader, j Job) (list, name string) {
	job := []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"}
	names := job
	if s := v.first(slurm.rank); j.Launcher != openMPI.name && s == strconv.Itoa(j.Rank) {
		names = append([]string{"SLURM_STEP_NODELIST"}, job...)
	}
	for _, name := range names {
		if s := v.first(name); s != "" {
			return s, name
		}
	}
	return "", ""
}

// firstHost expands the first host of a list in Slurm's notation: node[03-07,9]-ib,other begins with
// node03-ib.
func firstHost(list string) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("host list %q: %s; set MASTER_ADDR to the machine of rank 0", shorten(list), why)
	}
	var host strings.Builder
	rest := list
	for rest != "" && rest[0] != ',' {
		if rest[0] != '[' {
			n := strings.IndexAny(rest, "[,")
			if n < 0 {
				n = len(rest)
			}
			host.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		inside, after, ok := strings.Cut(rest[1:], "]")
		if !ok {
			return bad("an opening bracket has no closing one")
		}
		item, _, _ := strings.Cut(inside, ",")
		low, high, isRange := strings.Cut(item, "-")
		if !units.IsDigits(low) || isRange && !units.IsDigits(high) {
			return bad("a range is malformed")
		}
		host.WriteString(low) // with its leading zeros
		rest = after
	}
	if !hostname.MatchString(host.String()) {
		return bad("it does not begin with a host name")
	}
	return host.String(), nil
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
