package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Launchers that give a rank, but no number of ranks or no machine of rank 0.
func TestMoreLaunchers(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("p1\np1\np2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		ompi = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 " +
			"OMPI_MCA_orte_hnp_uri=17.0;tcp://127.0.0.1,10.0.0.7:38871;tcp6://[fd00::2]:57173 MASTER_PORT=9 "
		hydra = "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_PORT=9 "
	)
	for _, c := range []struct {
		name, vars string
		want       Job
	}{
		{
			"PMIx", "PMIX_RANK=1 PMIX_NAMESPACE=prte-1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=9",
			Job{1, 2, -1, -1, "h:9", "PMIx", ""},
		},
		{
			"srun --mpi=pmix", "PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.7.0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 " +
				"SLURM_STEP_NODELIST=n[1-2] MASTER_PORT=9",
			Job{1, 2, -1, -1, "n1:9", "Slurm", ""},
		},
		{
			"an indexed Job", "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=job-0.svc MASTER_PORT=9",
			Job{1, 2, -1, -1, "job-0.svc:9", "Kubernetes", ""},
		},
		{
			"Kubeflow without torchrun", "PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=t-0.svc " +
				"PET_MASTER_PORT=29500 JOB_COMPLETION_INDEX=1",
			Job{1, 2, -1, -1, "t-0.svc:29500", "Kubeflow", ""},
		},
		{
			"torchrun in Kubeflow", "RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 MASTER_ADDR=t-0.svc " +
				"MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=8",
			Job{9, 16, 1, 8, "t-0.svc:29501", "torchrun", ""},
		},
		{
			"allcast run in a task of Slurm", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 " +
				"MASTER_PORT=9 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=16 SLURM_STEP_NUM_NODES=2",
			Job{1, 2, 1, 2, "127.0.0.1:9", "torchrun", ""},
		},
		{"mpirun's machine", ompi, Job{2, 4, 0, 2, "10.0.0.7:9", "Open MPI", ""}},
		{"LSF", ompi + "LSB_HOSTS=l1", Job{2, 4, 0, 2, "l1:9", "Open MPI", ""}},
		{"PBS", hydra + "PBS_NODEFILE=" + hosts, Job{2, 4, 0, 2, "p1:9", "PMI", ""}},
	} {
		got, found, err := FromLauncher(lookupIn(c.vars))
		if err != nil || !found || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestMoreLauncherErrors(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const ompi = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
	for vars, want := range map[string]string{
		"PMIX_RANK=1":            "PMIX_RANK is set, but WORLD_SIZE is not; PMIx does not tell it",
		"JOB_COMPLETION_INDEX=1": "number of pods of the Job (spec.completions)",
		"JOB_COMPLETION_INDEX=1 WORLD_SIZE=2": "set MASTER_ADDR in the pod template to the name of the first pod, " +
			"such as JOB-0.SERVICE",
		"TORCHELASTIC_RUN_ID=x": "TORCHELASTIC_RUN_ID is set, but RANK is not",

		"OMPI_COMM_WORLD_RANK=1 " + ompi:                         "mpirun -x MASTER_ADDR=HOST ..., where HOST is rank 0",
		"OMPI_COMM_WORLD_RANK=0 " + ompi:                         "mpirun -x MASTER_ADDR=" + host + " ...",
		"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2":                "mpiexec -genv MASTER_ADDR " + host + " ...",
		"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2":                "mpiexec -genv MASTER_ADDR HOST ..., where HOST is",
		"RANK=1 WORLD_SIZE=2":                                    "export MASTER_ADDR=HOST on all ranks",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h LOCAL_RANK=3":         "WORLD_SIZE is the number of ranks, not of nodes",
		"RANK=9 WORLD_SIZE=2 MASTER_ADDR=h":                      "WORLD_SIZE is the number of ranks, not of nodes",
		"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=8 MASTER_ADDR=h":   "WORLD_SIZE is the number of ranks, not of nodes",
		"PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=auto":   "start the program with torchrun",
		"PET_NODE_RANK=1 PET_NNODES=1:4 PET_NPROC_PER_NODE=1":    "PET_NNODES=\"1:4\"",
		"PMIX_RANK=5 PMIX_NAMESPACE=p WORLD_SIZE=2":              "WORLD_SIZE is the number of ranks, not of nodes",
		"OMPI_COMM_WORLD_RANK=0 OMPI_MCA_orte_hnp_uri=a " + ompi: "rank 0 is not on the machine of mpirun",

		"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h PET_NNODES=2 PET_NPROC_PER_NODE=8": "WORLD_SIZE=2 counts nodes, not ranks, " +
			"and PET_NPROC_PER_NODE=8",
		"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4": "" +
			"WORLD_SIZE=2 counts nodes, not ranks: Open MPI has started 8 processes on 2 nodes",
		"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 SLURM_NNODES=2": "" +
			"Slurm has started 16 processes on 2 nodes; unset RANK and WORLD_SIZE, or set WORLD_SIZE=16",
	} {
		_, found, err := FromLauncher(lookupIn(vars))
		if !found || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", vars, err, want)
		}
	}
}

// torchrun's count of restarts keeps the entries of an earlier attempt apart.
func TestRestarts(t *testing.T) {
	s, err := Resolve(Settings{}, lookupIn("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=3"))
	if err != nil || s.Attempt != 3 {
		t.Errorf("attempt %d, %v", s.Attempt, err)
	}
	s, err = Resolve(Settings{Meeting: Meeting{Attempt: 7}}, lookupIn("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=3"))
	if err != nil || s.Attempt != 7 {
		t.Errorf("attempt %d, %v", s.Attempt, err)
	}
}

func TestUnknownVariables(t *testing.T) {
	var environ []string
	for _, v := range Variables {
		environ = append(environ, v.Name+"=x")
	}
	environ = append(environ, "ALLCAST_LIBRARY=x", "ALLCAST_MPI=stats", "ALLCAST_MPI_EAGER=1", "ALLCAST_TEST_COMMAND=1",
		"PATH=/")
	if got := UnknownVariables(environ); got != nil {
		t.Errorf("%q", got)
	}
	for name, near := range map[string]string{
		"ALLCAST_TIMEOT": "ALLCAST_TIMEOUT", "ALLCAST_KEYFILE": "ALLCAST_KEY_FILE", "ALLCAST_INTERFACE": "ALLCAST_",
		"ALLCAST_LOG": "ALLCAST_", "ALLCAST_TORCH_PIECS": "ALLCAST_TORCH_PIECE", "ALLCAST_IFNAMES": "ALLCAST_IFNAME",
		"ALLCAST_": "ALLCAST_",
	} {
		got := UnknownVariables([]string{name + "=secret"})
		if len(got) != 1 || !strings.HasPrefix(got[0], name+" ") || !strings.Contains(got[0], "the nearest name is "+near) ||
			strings.Contains(got[0], "secret") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
