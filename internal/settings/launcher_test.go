package settings

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func lookupIn(vars string) Env {
	m := map[string]string{}
	for v := range strings.FieldsSeq(vars) {
		name, value, _ := strings.Cut(v, "=")
		m[name] = value
	}
	return func(name string) (string, bool) {
		s, ok := m[name]
		return s, ok
	}
}

func TestFromLauncher(t *testing.T) {
	const (
		torch = "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500"
		ompi  = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4"
		srun  = "SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=77 SLURM_STEP_NODELIST=n[03-05]"
	)
	for _, c := range []struct {
		name, vars string
		want       Job
	}{
		{"torchrun", torch, Job{3, 8, 1, 2, "n0:29500", "torchrun", ""}},
		{
			"torchrun's agent has the port", torch + " TORCHELASTIC_USE_AGENT_STORE=True",
			Job{3, 8, 1, 2, "n0:29501", "torchrun", ""},
		},
		{
			"rank 0's store has the port", torch + " TORCHELASTIC_USE_AGENT_STORE=False TORCHELASTIC_RUN_ID=x",
			Job{3, 8, 1, 2, "n0:29501", "torchrun", ""},
		},
		{"no port above", torch + " MASTER_PORT=65535 TORCHELASTIC_RUN_ID=x", Job{3, 8, 1, 2, "n0:65534", "torchrun", ""}},
		{"torchrun comes first", torch + " " + ompi + " " + srun, Job{3, 8, 1, 2, "n0:29500", "torchrun", ""}},
		{"IPv6", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=1", Job{1, 2, -1, -1, "[fd00::1]:1", "torchrun", ""}},
		{
			"IPv6 in brackets", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=[fd00::1] MASTER_PORT=1",
			Job{1, 2, -1, -1, "[fd00::1]:1", "torchrun", ""},
		},
		{"alone", "RANK=0 WORLD_SIZE=1", Job{0, 1, -1, -1, "127.0.0.1:29400", "torchrun", ""}},
		{"Open MPI", ompi, Job{1, 4, 1, 4, "127.0.0.1:29400", "Open MPI", ""}},
		{
			"Open MPI, address given", ompi + " MASTER_ADDR=10.0.0.1 MASTER_PORT=5",
			Job{1, 4, 1, 4, "10.0.0.1:5", "Open MPI", ""},
		},
		{"a script's WORLD_SIZE is no rank", ompi + " WORLD_SIZE=4", Job{1, 4, 1, 4, "127.0.0.1:29400", "Open MPI", ""}},
		{
			"mpirun in a Slurm job",
			"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=1 " +
				"SLURM_STEP_NODELIST=n04 SLURM_JOB_NODELIST=n[03-04] MASTER_PORT=9",
			Job{1, 4, -1, -1, "n03:9", "Open MPI", ""},
		},
		{"PMI", "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", Job{0, 2, 0, 2, "127.0.0.1:29400", "PMI", ""}},
		{"PMI, machines", "PMI_RANK=0 PMI_SIZE=2 MASTER_ADDR=a_b.c", Job{0, 2, -1, -1, "a_b.c:29400", "PMI", ""}},
		{
			"srun with PMI",
			"PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 " +
				"SLURM_STEP_NODELIST=n[8-9] SLURM_JOB_NODELIST=n[1-9] MASTER_PORT=9",
			Job{1, 2, -1, -1, "n8:9", "PMI", ""},
		},
		{"Slurm", srun + " MASTER_PORT=9", Job{5, 6, 1, -1, "n03:9", "Slurm", ""}},
		{"Slurm, job's list", "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODELIST=a,b", Job{1, 2, -1, -1, "a:29400", "Slurm", ""}},
		{
			"Slurm, fewer tasks than the job", srun + " SLURM_STEP_NUM_TASKS=7 MASTER_PORT=9",
			Job{5, 7, 1, -1, "n03:9", "Slurm", ""},
		},
		{
			"Slurm, tasks", srun + " SLURM_STEP_TASKS_PER_NODE=1,2(x2),1 SLURM_NODEID=2 MASTER_PORT=9",
			Job{5, 6, 1, 2, "n03:9", "Slurm", ""},
		},
		{"Slurm, one node", srun + " SLURM_STEP_NUM_NODES=1 MASTER_PORT=9", Job{5, 6, 1, 6, "127.0.0.1:9", "Slurm", ""}},
		{"srun in a batch script", srun + " ENVIRONMENT=BATCH MASTER_PORT=9", Job{5, 6, 1, -1, "n03:9", "Slurm", ""}},
		{"nothing", "", Job{}},
		{"address alone", "MASTER_ADDR=x MASTER_PORT=1 LOCAL_RANK=0", Job{}},
		{"shell of an allocation", "SLURM_JOB_ID=7 SLURM_NODELIST=n1 SLURM_NTASKS=4", Job{}},
		{"shell of an allocation, no tasks", "SLURM_JOB_ID=7 SLURM_NODELIST=n1 SLURM_PROCID=0", Job{}},
		{"batch script", "ENVIRONMENT=BATCH SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODELIST=n1", Job{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, found, err := FromLauncher(lookupIn(c.vars))
			if err != nil || got != c.want || found != (c.want != Job{}) {
				t.Errorf("got %+v, %v, %v; want %+v", got, found, err, c.want)
			}
		})
	}
}

func TestFromLauncherErrors(t *testing.T) {
	for _, c := range []struct{ vars, want string }{
		{"RANK=0", "WORLD_SIZE is not"},
		{"WORLD_SIZE=2", "RANK is not"},
		{"RANK= WORLD_SIZE=2", `RANK=""`},
		{"RANK=x WORLD_SIZE=2", `RANK="x"`},
		{"RANK=-1 WORLD_SIZE=2", `RANK="-1"`},
		{"RANK=2 WORLD_SIZE=2", "RANK=2 is not below WORLD_SIZE=2"},
		{"RANK=0 WORLD_SIZE=0", `WORLD_SIZE="0"`},
		{"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE="},
		{"RANK=0 WORLD_SIZE=2", "MASTER_ADDR="},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=", "MASTER_ADDR="},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=host:5", "MASTER_PORT"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0", `MASTER_PORT="0"`},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", "MASTER_PORT"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=no MASTER_ADDR=h", "LOCAL_RANK"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h", "local rank 2"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3 MASTER_ADDR=h", "LOCAL_WORLD_SIZE=3"},
		{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR="},
		{"PMI_RANK=0", "PMI_SIZE is not"},
		{"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=x", "MPI_LOCALNRANKS"},
		{"SLURM_PROCID=4 SLURM_NTASKS=4", "SLURM_PROCID=4"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4", "MASTER_ADDR="},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODELIST=n[", "SLURM_NODELIST"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2(y", "SLURM_STEP_TASKS_PER_NODE"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2", "no node"},
	} {
		_, found, err := FromLauncher(lookupIn(c.vars))
		if err == nil || !found || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found %v, error %v; want %q", c.vars, found, err, c.want)
		}
	}
}

// The variables that differ between the ranks of a job must not move its port.
func TestDerivedPort(t *testing.T) {
	port := func(vars string) int {
		t.Helper()
		e, _, err := FromLauncher(lookupIn(vars))
		if err != nil {
			t.Fatal(err)
		}
		_, p, _ := net.SplitHostPort(e.Addr)
		n, _ := strconv.Atoi(p)
		return n
	}
	ompi := func(rank, job string) string {
		// These are the variables of Open MPI 4.1 on Debian.
		return "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK=" + rank +
			" OMPI_COMM_WORLD_LOCAL_RANK=" + rank +
			" OMPI_MCA_ess_base_jobid=" + job + " OMPI_MCA_ess_base_vpid=" + rank + " PMIX_RANK=" + rank +
			" PMIX_ID=" + job + "." + rank
	}
	slurm := func(rank, step string) string {
		return "SLURM_NTASKS=2 SLURM_NODELIST=n SLURM_JOB_ID=9 SLURM_PROCID=" + rank + " SLURM_STEP_ID=" + step
	}
	for _, c := range [][3]string{
		{ompi("0", "510132225"), ompi("1", "510132225"), ompi("0", "510132226")},
		{slurm("0", "1"), slurm("1", "1"), slurm("0", "2")},
	} {
		a, b, other := port(c[0]), port(c[1]), port(c[2])
		if a != b || a == other || a < firstPort || a >= firstPort+ports {
			t.Errorf("%s: ports %d, %d; of another job %d", c[0], a, b, other)
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"node":                   "node",
		"node[03-07,9],other":    "node03",
		"node[9,03-07]":          "node9",
		"a,b":                    "a",
		"rack[1-2]node[005-9]-x": "rack1node005-x",
		"n[12].example.org":      "n12.example.org",
		"n[0-1]b,c[2]":           "n0b",
		"":                       "",
		",a":                     "",
		"n[":                     "",
		"n[]":                    "",
		"n[a-b]":                 "",
		"n[1-]":                  "",
		"n[-1]":                  "",
		"n]1[":                   "",
		"a b":                    "",
	} {
		got, err := firstHost(list)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
}

func FuzzHostlist(f *testing.F) {
	for _, s := range []string{"node[03-07,9],other", "a", "n[", "[1]", "x[1-2][3]y", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		host, err := firstHost(list)
		if (err == nil) != hostname.MatchString(host) {
			t.Fatalf("%q: %q, %v", list, host, err)
		}
		// Later hosts do not matter.
		if again, err2 := firstHost(list + ",more[1-2]"); err == nil && (err2 != nil || again != host) {
			t.Fatalf("%q: %q, with more hosts %q, %v", list, host, again, err2)
		}
		_, _ = tasksOn(list, 3)
	})
}

func TestKey(t *testing.T) {
	const digits = "00112233445566778899aabbccddeeff"
	file := func(s string) string {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return "ALLCAST_KEY_FILE=" + path
	}
	for vars, n := range map[string]int{
		"":                                           0,
		"ALLCAST_KEY=" + digits:                      16,
		"ALLCAST_KEY=" + digits + digits:             32,
		file(digits + "\n"):                          16,
		"ALLCAST_KEY=":                               -1,
		"ALLCAST_KEY=" + digits[:30]:                 -1,
		"ALLCAST_KEY=" + digits + "a":                -1,
		"ALLCAST_KEY=" + digits[:30] + "zq":          -1,
		file(digits[:30] + "zq"):                     -1,
		file(""):                                     -1,
		"ALLCAST_KEY_FILE=/nonexistent/key":          -1,
		"ALLCAST_KEY=" + digits + " " + file(digits): -1,
	} {
		key, err := Key(lookupIn(vars))
		if len(key) != max(n, 0) || (err != nil) != (n < 0) || (n == 0) != (key == nil && err == nil) {
			t.Errorf("%s: %d bytes, %v", vars, len(key), err)
		}
		if err != nil && (strings.Contains(err.Error(), "zq") || strings.Contains(err.Error(), "0011")) {
			t.Errorf("the key is in the error: %v", err)
		}
	}
}
