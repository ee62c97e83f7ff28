package rendezvous

import (
	"fmt"
	"strconv"
)

// Env is what launchers tell a rank.
type Env struct {
	Rank, Size           int
	LocalRank, LocalSize int    // among the ranks of this machine; -1: unknown
	Addr                 string // host:port of rank 0's rendezvous
	Launcher             string // whose variables were used: "torchrun", "Open MPI", "PMI", "Slurm"
}

// FromEnv reads the variables of the launchers, in the order torchrun, Open MPI,
// PMI, Slurm; lookup is os.LookupEnv outside tests. found is false where no
// launcher left any. An error names the variable and says what to set.
//
// MASTER_ADDR and MASTER_PORT are honoured with every launcher. Without them:
//
//   - The address is 127.0.0.1 where all ranks are on this machine, else the
//     first host of the Slurm job.
//   - The port follows from the job's identity, so that jobs on one machine do not
//     meet, or is 29400 where the launcher gives none (as MPICH's does not).
//
// Under torchrun the port is MASTER_PORT + 1, because torchrun's agent, or the
// training program's own store, listens on MASTER_PORT.
func FromEnv(lookup func(string) (string, bool)) (env Env, found bool, err error) {
	v := vars{lookup: lookup}
	for _, read := range []func(*vars) (Env, bool){torchrun, openMPI, pmi, slurm} {
		e, ok := read(&v)
		if v.err != nil {
			return Env{}, true, v.err
		}
		if !ok {
			continue
		}
		if err := e.check(); err != nil {
			return Env{}, true, err
		}
		if e.Addr, err = address(&v, e); err != nil {
			return Env{}, true, err
		}
		return e, true, nil
	}
	// Scripts export WORLD_SIZE for programs that take the rank from the launcher,
	// so it is wrong only where no launcher says the rank.
	if v.has("WORLD_SIZE") {
		return Env{}, true, fmt.Errorf("rendezvous: WORLD_SIZE is set, but RANK is not; set RANK to this process's number, from 0")
	}
	return Env{}, false, nil
}

// vars reads variables and keeps the first error.
type vars struct {
	lookup func(string) (string, bool)
	err    error
}

func (v *vars) has(name string) bool {
	_, ok := v.lookup(name)
	return ok
}

func (v *vars) first(names ...string) string {
	for _, name := range names {
		if s, ok := v.lookup(name); ok && s != "" {
			return s
		}
	}
	return ""
}

func (v *vars) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf("rendezvous: "+format, args...)
	}
}

// number is a variable that must be there, because who was.
func (v *vars) number(name, who string, lowest, highest int) int {
	if !v.has(name) {
		v.fail("%s is set, but %s is not; set both or none", who, name)
		return 0
	}
	return v.optional(name, lowest, highest)
}

// optional is a variable's number, or -1 if it is not there.
func (v *vars) optional(name string, lowest, highest int) int {
	s, ok := v.lookup(name)
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lowest || n > highest {
		v.fail("%s=%q is not a number in %d..%d", name, s, lowest, highest)
		return 0
	}
	return n
}

func torchrun(v *vars) (Env, bool) {
	if !v.has("RANK") {
		return Env{}, false
	}
	return named(v, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), true
}

func openMPI(v *vars) (Env, bool) {
	const rank, size = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
	if !v.has(rank) && !v.has(size) {
		return Env{}, false
	}
	return named(v, "Open MPI", rank, size, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), true
}

func pmi(v *vars) (Env, bool) {
	if !v.has("PMI_RANK") && !v.has("PMI_SIZE") {
		return Env{}, false
	}
	return named(v, "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), true
}

func named(v *vars, launcher, rank, size, localRank, localSize string) Env {
	e := Env{
		Launcher:  launcher,
		Size:      v.number(size, rank, 1, MaxSize),
		Rank:      v.number(rank, size, 0, MaxSize-1),
		LocalRank: v.optional(localRank, 0, MaxSize-1),
		LocalSize: v.optional(localSize, 1, MaxSize),
	}
	if v.err == nil && e.Rank >= e.Size {
		v.fail("%s=%d is not below %s=%d", rank, e.Rank, size, e.Size)
	}
	if v.err == nil && e.LocalSize > e.Size {
		v.fail("%s=%d is above %s=%d", localSize, e.LocalSize, size, e.Size)
	}
	return e
}

// check finds what the variables of one launcher cannot mean together.
func (e Env) check() error {
	if e.LocalSize >= 0 && e.LocalRank >= e.LocalSize {
		return fmt.Errorf("rendezvous: the local rank %d is not below the number of local ranks %d (%s)", e.LocalRank, e.LocalSize, e.Launcher)
	}
	return nil
}
