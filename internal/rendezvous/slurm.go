package rendezvous

import (
	"fmt"
	"strconv"
	"strings"
)

// slurm reads what srun sets. The shell of an allocation has part of it; a batch
// script even has a rank, though it is no task of a step.
func slurm(v *vars) (Env, bool) {
	const rank = "SLURM_PROCID"
	size := "SLURM_STEP_NUM_TASKS" // srun may start fewer than the job has
	if !v.has(size) {
		size = "SLURM_NTASKS"
	}
	if !v.has(rank) || !v.has(size) {
		return Env{}, false
	}
	if v.first("ENVIRONMENT") == "BATCH" && !v.has("SLURM_STEP_ID") && !v.has("SLURM_STEPID") {
		return Env{}, false
	}
	e := named(v, "Slurm", rank, size, "SLURM_LOCALID", "")
	e.LocalSize = slurmLocal(v, e.Size)
	return e, true
}

// slurmLocal is the number of tasks on this node, -1 if unknown.
func slurmLocal(v *vars, size int) int {
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
	s, _ := v.lookup(list)
	n, err := tasksOn(s, v.optional(node, 0, MaxSize-1))
	if err == nil && n > size {
		err = fmt.Errorf("%d tasks on one node, %d altogether", n, size)
	}
	if err != nil {
		v.fail("%s=%q: %w", list, s, err)
	}
	return n
}

// tasksOn finds a node's number in a list such as 2(x3),1.
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

// slurmHosts is the list of hosts whose first one has rank 0. Ranks that srun
// started look at their step. mpirun inside a Slurm job starts its daemons in
// steps that leave its own node out, so there the job's list counts.
func slurmHosts(v *vars, e Env) (list, name string) {
	job := []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"}
	names := job
	if s := v.first("SLURM_PROCID"); e.Launcher != "Open MPI" && s == strconv.Itoa(e.Rank) {
		names = append([]string{"SLURM_STEP_NODELIST"}, job...)
	}
	for _, name := range names {
		if s := v.first(name); s != "" {
			return s, name
		}
	}
	return "", ""
}

// firstHost expands the first host of a list in Slurm's notation:
// node[03-07,9]-ib,other begins with node03-ib.
func firstHost(list string) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("list of hosts %q: %s; set MASTER_ADDR to rank 0's machine", shorten(list), why)
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
			return bad("a bracket is not closed")
		}
		item, _, _ := strings.Cut(inside, ",")
		low, high, isRange := strings.Cut(item, "-")
		if !isDigits(low) || isRange && !isDigits(high) {
			return bad("a range is malformed")
		}
		host.WriteString(low) // with its leading zeros
		rest = after
	}
	if !isHostname(host.String()) {
		return bad("no host name comes first")
	}
	return host.String(), nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
