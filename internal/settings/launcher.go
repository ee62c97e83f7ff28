package settings

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A launcher names the variables by which it describes a job to a rank.
type launcher struct {
	name                 string
	rank, size           string
	localRank, localSize string // may be missing
}

var (
	torchrun = launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
	openMPI  = launcher{
		"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
		"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
	}
	pmi = launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}
	// PMIx tells the number of ranks only to programs that link it.
	pmix  = launcher{"PMIx", "PMIX_RANK", torchrun.size, "", ""}
	slurm = launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""}
	// A container that is meant to start torchrun, which reads these variables, and starts one rank itself.
	torchNode = launcher{"Kubeflow", "PET_NODE_RANK", "PET_NNODES", "", ""}
	// An indexed Job of Kubernetes. No variable has the number of its pods.
	kubernetes = launcher{"Kubernetes", "JOB_COMPLETION_INDEX", torchrun.size, "", ""}

	launchers = []launcher{torchrun, openMPI, pmi, pmix, slurm, torchNode, kubernetes} // in order of precedence
)

// Variables of torchrun that every launcher honours, and their names for a container that is meant to start torchrun.
const (
	masterAddr = "MASTER_ADDR"
	masterPort = "MASTER_PORT"

	nodeMasterAddr = "PET_MASTER_ADDR"
	nodeMasterPort = "PET_MASTER_PORT"
)

// FromLauncher identifies this process by the variables of torchrun, Open MPI, PMI, PMIx, Slurm, Kubeflow or
// Kubernetes, in that order. found is false where no launcher set any. An error names the variable and says what to
// set.
//
// MASTER_ADDR and MASTER_PORT are honoured with every launcher. Without them:
//
//   - The address is 127.0.0.1 where all ranks are on this machine. Otherwise it is the first host that the
//     launcher or the batch system names.
//   - The port follows from the job's identity, so that jobs on one machine do not meet. It is 29400
//     where the launcher, such as MPICH's, gives no identity.
//
// Under torchrun the port is MASTER_PORT + 1, because torchrun's agent, or the training program's own
// store, listens on MASTER_PORT.
func FromLauncher(env Env) (j Job, found bool, err error) { return fromLauncher(env, true) }

// fromLauncher is FromLauncher, with or without the address.
func fromLauncher(env Env, address bool) (j Job, found bool, err error) {
	v := reader{env: env}
	for _, l := range launchers {
		if !l.present(&v) {
			continue
		}
		j := l.job(&v)
		switch {
		case v.err != nil:
			return Job{}, true, v.err
		case j.LocalSize >= 0 && j.LocalRank >= j.LocalSize:
			return Job{}, true, fmt.Errorf("the local rank %d is not below the number of local ranks %d (%s)",
				j.LocalRank, j.LocalSize, j.Launcher)
		}
		if err := l.countsRanks(&v, j); err != nil {
			return Job{}, true, err
		}
		if address {
			if j.Addr, err = rootAddress(&v, j); err != nil {
				return Job{}, true, err
			}
		}
		return j, true, nil
	}
	if v.has(torchRunID) {
		return Job{}, true, errors.New(torchRunID + " is set, but RANK is not; torchrun sets both: pass its variables on")
	}
	if v.has(torchrun.size) {
		return Job{}, true, errors.New("WORLD_SIZE is set, but RANK is not; set RANK to this process's number, from 0")
	}
	return Job{}, false, nil
}

// Environ returns base with the variables that FromLauncher and Key need to find j and key. It removes
// those that would contradict them: a key file of the surrounding job, and torchrun's variables, which
// imply that MASTER_PORT is in use.
func (j Job) Environ(base []string, key []byte) []string {
	host, port, _ := net.SplitHostPort(j.Addr)
	drop := []string{
		torchrun.rank, torchrun.size, torchrun.localRank, torchrun.localSize, masterAddr, masterPort,
		"GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", torchRunID, torchAgentStore, KeyVar, KeyFileVar,
	}
	env := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(drop, name)
	})
	return append(env,
		torchrun.rank+"="+strconv.Itoa(j.Rank), torchrun.size+"="+strconv.Itoa(j.Size),
		torchrun.localRank+"="+strconv.Itoa(j.LocalRank), torchrun.localSize+"="+strconv.Itoa(j.LocalSize),
		masterAddr+"="+host, masterPort+"="+port, KeyVar+"="+hex.EncodeToString(key))
}

// localRank is the number of this process among the ranks of the machine, by any launcher's variable;
// 0 where there is none.
func localRank(env Env) (int, error) {
	for _, l := range launchers {
		value := ""
		if l.localRank != "" {
			value = env.Get(l.localRank)
		}
		if value == "" {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s=%q: want a number from 0", l.localRank, value)
		}
		return n, nil
	}
	return 0, nil
}

// LocalSize is the number of ranks on this machine, by any launcher's variables; 0 where none tells it.
func LocalSize(env Env) int {
	for _, l := range launchers {
		if l.localSize == "" {
			continue
		}
		if n, err := strconv.Atoi(env.Get(l.localSize)); err == nil && n > 0 {
			return n
		}
	}
	if j, found, err := fromLauncher(env, false); err == nil && found && j.LocalSize > 0 {
		return j.LocalSize
	}
	return 0
}

// reader reads variables and keeps the first error.
type reader struct {
	env Env
	err error
}

func (v *reader) has(name string) bool {
	_, ok := v.env(name)
	return ok
}

// first returns the value of the first variable that has one.
func (v *reader) first(names ...string) string {
	for _, name := range names {
		if s := v.env.Get(name); s != "" {
			return s
		}
	}
	return ""
}

func (v *reader) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// required reads the number of a variable that must be set because another one is.
func (v *reader) required(name, other string, lowest, highest int) int {
	if !v.has(name) {
		v.fail("%s is set, but %s is not; set both or none", other, name)
		return 0
	}
	return v.optional(name, lowest, highest)
}

// optional reads a variable's number, which is -1 if the variable is not set.
func (v *reader) optional(name string, lowest, highest int) int {
	if name == "" {
		return -1
	}
	s, ok := v.env(name)
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lowest || n > highest {
		v.fail("%s=%q: want a number from %d to %d", name, s, lowest, highest)
		return 0
	}
	return n
}

// present reports whether the launcher has started this process. Scripts export WORLD_SIZE for other
// launchers, so only RANK shows torchrun.
func (l launcher) present(v *reader) bool {
	switch l {
	case torchrun:
		return v.has(l.rank)
	case slurm:
		return inSlurmStep(v)
	case pmix:
		// srun's own PMIx has all variables of Slurm.
		return v.has(l.rank) && !strings.HasPrefix(v.first("PMIX_NAMESPACE"), "slurm.pmix.")
	case torchNode, kubernetes:
		return v.has(l.rank)
	}
	return v.has(l.rank) || v.has(l.size)
}

func (l launcher) job(v *reader) Job {
	if l == slurm && v.has(slurmStepSize) { // srun may start fewer tasks than the job has
		l.size = slurmStepSize
	}
	if !v.has(l.size) && l.advice() != "" {
		v.fail("%s is set, but %s is not; %s", l.rank, l.size, l.advice())
	}
	j := Job{
		Launcher:  l.name,
		Size:      v.required(l.size, l.rank, 1, MaxSize),
		Rank:      v.required(l.rank, l.size, 0, MaxSize-1),
		LocalRank: v.optional(l.localRank, 0, MaxSize-1),
		LocalSize: v.optional(l.localSize, 1, MaxSize),
	}
	if j.Rank >= j.Size {
		v.fail("%s=%d is not below %s=%d%s", l.rank, j.Rank, l.size, j.Size, l.hint())
	}
	if j.LocalSize > j.Size {
		v.fail("%s=%d is above %s=%d%s", l.localSize, j.LocalSize, l.size, j.Size, l.hint())
	}
	if j.LocalSize < 0 && j.LocalRank >= j.Size {
		v.fail("%s=%d is not below %s=%d%s", l.localRank, j.LocalRank, l.size, j.Size, l.hint())
	}
	if l.name == slurm.name {
		j.LocalSize = slurmLocalSize(v, j.Size)
	}
	return j
}
