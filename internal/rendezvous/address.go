package rendezvous

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	defaultPort = 29400
	// Ports that follow from a job's identity. They lie below Linux's ephemeral
	// range, 32768 and up, where any connection may sit on them.
	firstPort, ports = 20000, 10000
)

// address is where rank 0 waits.
func address(v *vars, e Env) (string, error) {
	host, err := masterHost(v, e)
	if err != nil {
		return "", err
	}
	port := v.optional("MASTER_PORT", 1, 65535)
	if v.err != nil {
		return "", v.err
	}
	switch {
	case port < 0:
		port = derivedPort(jobID(v))
	case v.has("TORCHELASTIC_RUN_ID") || v.first("TORCHELASTIC_USE_AGENT_STORE") == "True":
		// Taken by torchrun's agent or by rank 0's TCPStore.
		if port++; port > 65535 {
			port -= 2
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func masterHost(v *vars, e Env) (string, error) {
	if host, ok := v.lookup("MASTER_ADDR"); ok {
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if _, err := netip.ParseAddr(bare); err == nil {
			return bare, nil
		}
		if !isHostname(host) {
			return "", fmt.Errorf("rendezvous: MASTER_ADDR=%q is neither a name nor an address; the port goes into MASTER_PORT", host)
		}
		return host, nil
	}
	if e.LocalSize == e.Size || e.Size == 1 {
		return "127.0.0.1", nil
	}
	list, name := slurmHosts(v, e)
	if list != "" {
		host, err := firstHost(list)
		if err != nil {
			return "", fmt.Errorf("rendezvous: %s: %w", name, err)
		}
		return host, nil
	}
	return "", errors.New("rendezvous: MASTER_ADDR is not set, and not all ranks are known to be on this machine; " +
		"set MASTER_ADDR to the name or address of rank 0's machine, the same on all ranks")
}

// isHostname is lenient: underscores occur in names of containers.
func isHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		default:
			return false
		}
	}
	return true
}

// jobID is the same on all ranks of a job and differs between jobs; empty if
// nobody says. Open MPI 4.1 sets the first three, 5 the first. MPICH's Hydra sets
// none; the variables of batch systems are better than nothing there.
func jobID(v *vars) string {
	for _, name := range []string{
		"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri",
		"PMI_JOBID", "PALS_APID",
	} {
		if s := v.first(name); s != "" {
			return s
		}
	}
	if job := v.first("SLURM_JOB_ID", "SLURM_JOBID"); job != "" {
		id := "slurm " + job
		// mpirun starts remote ranks in a Slurm step of their own, and local ones in none.
		if step := v.first("SLURM_STEP_ID", "SLURM_STEPID"); step != "" && v.has("SLURM_PROCID") && !v.has("OMPI_COMM_WORLD_RANK") {
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
