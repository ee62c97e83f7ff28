package settings

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
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

	// torchRestarts counts how often torchrun has started the job again.
	torchRestarts = "TORCHELASTIC_RESTART_COUNT"
)

// rootAddress returns the address of rank 0's rendezvous.
func rootAddress(v *reader, j Job) (string, error) {
	host, err := rootHost(v, j)
	if err != nil {
		return "", err
	}
	port := v.optional(masterPort, 1, 65535)
	if port < 0 {
		port = v.optional(nodeMasterPort, 1, 65535)
	}
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
	for _, name := range []string{masterAddr, nodeMasterAddr} {
		host, ok := v.env(name)
		if !ok {
			continue
		}
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if _, err := netip.ParseAddr(bare); err == nil {
			return bare, nil
		}
		if !hostname.MatchString(host) {
			return "", fmt.Errorf("%s=%q: want a host name or an address; the port belongs in %s", name, host,
				strings.Replace(name, "ADDR", "PORT", 1))
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
	if host := batchHost(v); host != "" {
		return host, nil
	}
	if j.Launcher == openMPI.name {
		return mpirunHost(v, j)
	}
	return "", noAddress(j, "")
}

// batchHost is the first host that a batch system other than Slurm names, on which its launchers start rank 0; "" if
// there is none.
func batchHost(v *reader) string {
	list := v.first("LSB_HOSTS", "LSB_MCPU_HOSTS")
	if path := v.first("PBS_NODEFILE"); list == "" && path != "" {
		b, _ := os.ReadFile(path) // PBS has the file on some machines only
		list = string(b)
	}
	if f := strings.Fields(list); len(f) > 0 && hostname.MatchString(f[0]) {
		return f[0]
	}
	return ""
}

// mpirunHost is the machine of Open MPI's mpirun, if rank 0 runs there. Open MPI does not name rank 0's machine.
// Usually it is that of mpirun, and only rank 0 can tell whether it is. If it is not, rank 0 says so, and mpirun ends
// the job.
func mpirunHost(v *reader, j Job) (string, error) {
	const mpirun, daemon = "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri"
	uri := v.first(mpirun)
	if own := v.first(daemon); j.Rank == 0 && own != uri {
		return "", noAddress(j, "rank 0 is not on the machine of mpirun, and ")
	}
	var found []string
	for part := range strings.SplitSeq(uri, ";") {
		list, ok := strings.CutPrefix(part, "tcp://")
		if !ok {
			continue
		}
		list, _, _ = strings.Cut(list, ":")
		for text := range strings.SplitSeq(list, ",") {
			if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() {
				found = append(found, a.String())
			}
		}
	}
	switch len(found) {
	case 0:
		return "", noAddress(j, "")
	case 1:
		return found[0], nil
	}
	// Some of them may be those of bridges, which other machines have too.
	return "", noAddress(j, "mpirun's machine has the addresses "+strings.Join(found, ", ")+", and ")
}

// noAddress says what to export. why ends in a conjunction.
func noAddress(j Job, why string) error {
	host, where := "HOST", ", where HOST is rank 0's machine"
	if name, err := os.Hostname(); j.Rank == 0 && err == nil && hostname.MatchString(name) {
		host, where = name, ""
	}
	export := "export MASTER_ADDR=" + host + " on all ranks"
	switch j.Launcher {
	case openMPI.name:
		export = "mpirun -x MASTER_ADDR=" + host + " ..."
	case pmi.name:
		export = "mpiexec -genv MASTER_ADDR " + host + " ..."
	case kubernetes.name, torchNode.name:
		export = "set MASTER_ADDR in the pod template to the name of the first pod, such as JOB-0.SERVICE"
		where = ""
	}
	return fmt.Errorf("%sMASTER_ADDR is not set, and not all ranks are known to be on this machine: %s%s", why, export,
		where)
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
