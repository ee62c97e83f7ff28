package settings

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

const (
	defaultPort = 29400
	// Range of the ports that follow from a job's identity. It lies below Linux's ephemeral range, 32768
	// and up, where any connection may occupy a port.
	firstPort, ports = 20000, 10000

	// Variables of torchrun which show that MASTER_PORT is in use.
	torchRunID      = "TORCHELASTIC_RUN_ID"
	torchAgentStore = "TORCHELASTIC_USE_AGENT_STORE"
)

// rootAddress returns the address of rank 0's rendezvous.
func rootAddress(v *reader, j Job) (string, error) {
	host, err := rootHost(v, j)
	if err != nil {
		return "", err
	}
	port := v.optional(masterPort, 1, 65535)
	if v.err != nil {
		return "", v.err
	}
	switch {
	case port < 0:
		port = derivedPort(jobID(v))
	case v.has(torchRunID) || v.first(torchAgentStore) == "True":
		// torchrun's agent or rank 0's TCPStore listens on the port itself.
		if port++; port > 65535 {
			port -= 2
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func rootHost(v *reader, j Job) (string, error) {
	if host, ok := v.env(masterAddr); ok {
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if _, err := netip.ParseAddr(bare); err == nil {
			return bare, nil
		}
		if !hostname.MatchString(host) {
			return "", fmt.Errorf("MASTER_ADDR=%q: want a host name or an address; the port belongs in MASTER_PORT", host)
		}
		return host, nil
	}
	if j.LocalSize == j.Size || j.Size == 1 {
		return "127.0.0.1", nil
	}
	if list, name := slurmHosts(v, j); list != "" {
		host, err := firstHost(list)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return host, nil
	}
	return "", errors.New("MASTER_ADDR is not set, and not all ranks are known to be on this machine; " +
		"set MASTER_ADDR to the name or address of rank 0's machine, the same on all ranks")
}

// hostname accepts underscores, because names of containers have them.
var hostname = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,253}$`)

// jobID is a name that is the same on all ranks of a job and differs between jobs; "" if no variable
// gives one. Open MPI 4.1 sets the first three, Open MPI 5 the first. MPICH's Hydra sets none of its
// own, so the variables of batch systems come last.
func jobID(v *reader) string {
	own := v.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMI_JOBID", "PALS_APID")
	if own != "" {
		return own
	}
	if job := v.first("SLURM_JOB_ID", "SLURM_JOBID"); job != "" {
		id := "slurm " + job
		// mpirun starts remote ranks in a Slurm step of their own, and local ranks in none.
		step := v.first("SLURM_STEP_ID", "SLURM_STEPID")
		if step != "" && v.has(slurm.rank) && !v.has(openMPI.rank) {
			id += "." + step
		}
		return id
	}
	return v.first("PBS_JOBID", "LSB_JOBID")
}

func derivedPort(id string) int {
	if id == "" {
		return defaultPort
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return firstPort + int(h.Sum32()%ports)
}
