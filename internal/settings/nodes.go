package settings

import (
	"fmt"
	"strconv"
)

// InKubernetes reports whether the process runs in a pod. Names of pods resolve only once the pods run.
func InKubernetes(env Env) bool { return env.Get("KUBERNETES_SERVICE_HOST") != "" }

// advice says where the number of ranks comes from if the launcher does not give it; "" if it always does.
func (l launcher) advice() string {
	switch l {
	case pmix:
		return "PMIx does not tell it to programs without its library: export WORLD_SIZE with the number of ranks, " +
			"or use mpirun of Open MPI, or srun"
	case kubernetes:
		return "set WORLD_SIZE in the pod template to the number of pods of the Job (spec.completions)"
	}
	return ""
}

// hint explains numbers that contradict each other, where scripts set the number of ranks.
func (l launcher) hint() string {
	if l.size != torchrun.size {
		return ""
	}
	return "; WORLD_SIZE is the number of ranks, not of nodes"
}

// countsRanks returns an error if the number of ranks is the number of nodes, and there are more ranks than nodes.
// Launchers that set LOCAL_WORLD_SIZE start the ranks themselves, so their numbers are right.
func (l launcher) countsRanks(v *reader, j Job) error {
	switch {
	case l == torchNode:
		return oneRankPerNode(v, "PET_NNODES", j.Size)
	case l != torchrun || v.has(torchrun.localSize):
		return nil
	}
	if !v.has(torchRunID) && v.first(torchNode.size) == strconv.Itoa(j.Size) {
		return oneRankPerNode(v, torchrun.size, j.Size)
	}
	for _, other := range []launcher{openMPI, pmi, slurm} {
		size, nodes := other.counts(v)
		if size > j.Size && nodes == j.Size {
			return fmt.Errorf("WORLD_SIZE=%d counts nodes, not ranks: %s has started %d processes on %d nodes; "+
				"unset RANK and WORLD_SIZE, or set WORLD_SIZE=%d and a RANK from 0 to %d",
				j.Size, other.name, size, nodes, size, size-1)
		}
	}
	return nil
}

// oneRankPerNode returns an error if a container is meant to start several ranks by torchrun.
func oneRankPerNode(v *reader, name string, nodes int) error {
	const perNode = "PET_NPROC_PER_NODE"
	n := v.first(perNode)
	if n == "" || n == "1" {
		return nil
	}
	return fmt.Errorf("%s=%d counts nodes, not ranks, and %s=%s: start the program with torchrun, which reads these "+
		"variables and starts the ranks of this node, or set %s=1", name, nodes, perNode, n, perNode)
}

// counts returns the processes and the nodes of a launcher that has started this process; 0 for unknown numbers.
func (l launcher) counts(v *reader) (size, nodes int) {
	number := func(names ...string) int {
		n, err := strconv.Atoi(v.first(names...))
		if err != nil || n < 1 {
			return 0
		}
		return n
	}
	if !l.present(v) {
		return 0, 0
	}
	switch l {
	case slurm:
		return number(slurmStepSize, l.size), number("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
	case openMPI:
		nodes = number("OMPI_MCA_orte_num_nodes")
	}
	size = number(l.size)
	if local := number(l.localSize); nodes == 0 && local > 0 {
		nodes = (size + local - 1) / local
	}
	return size, nodes
}
