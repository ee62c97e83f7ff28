//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// peer is an implementation of MPI.
type peer struct {
	name     string
	programs []string // compiler, launcher
	compile  []string // compiler flags
	launch   func(bed *testbed, op, algorithm string) (args, env []string)
	// algorithms lists, by operation, the algorithms that can be forced with 8 ranks. Other operations
	// run with the default only.
	algorithms map[string][]string
	program    string // path of the built benchmark
}

// peers are configured for ranks that share processors but not memory: they yield when idle, and
// are not bound to processors.
var peers = []*peer{
	{
		name:     "Open MPI",
		programs: []string{"mpicc.openmpi", "mpirun.openmpi"},
		launch: func(bed *testbed, op, algorithm string) (args, env []string) {
			args = []string{
				"--allow-run-as-root", "--leave-session-attached", "--host", bed.hosts(op),
				"--mca", "plm_rsh_agent", bed.agent, "--mca", "plm_rsh_no_tree_spawn", "1",
				"--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0",
				"--mca", "btl", "tcp,self", "--mca", "pml", "ob1",
				"--mca", "mpi_yield_when_idle", "1", "--bind-to", "none",
			}
			if algorithm != "" {
				name := "coll_tuned_" + operations[op].openMPI + "_algorithm"
				args = append(args, "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", name, algorithm)
			}
			return args, nil
		},
		algorithms: map[string][]string{
			"broadcast": {"1", "2", "3", "4", "5", "6", "7", "8", "9"},
			"allgather": {"1", "2", "3", "4", "5"},
		},
	},
	{
		name:     "MPICH",
		programs: []string{"mpicc.mpich", "mpiexec.hydra"},
		compile:  []string{"-rdynamic"}, // lets UCX use the epoll_wait of perf.c
		launch: func(bed *testbed, op, algorithm string) (args, env []string) {
			args = []string{
				"-launcher", "ssh", "-launcher-exec", bed.agent, "-iface", "eth0",
				"-hosts", bed.hosts(op), "-n", fmt.Sprint(bed.ranksOf(op)), "-ppn", "1",
			}
			env = []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0"}
			if algorithm != "" {
				env = append(env, "MPIR_CVAR_"+operations[op].mpich+"_INTRA_ALGORITHM="+algorithm)
			}
			return args, env
		},
		algorithms: map[string][]string{
			"broadcast": {"binomial", "scatter_recursive_doubling_allgather", "scatter_ring_allgather"},
			"allgather": {"brucks", "recursive_doubling", "ring"},
		},
	},
}

// numbered holds the names of Open MPI's algorithm numbers.
var numbered = map[string][]string{
	"broadcast": {
		"", "linear", "chain", "pipeline", "split binary", "binary", "binomial", "knomial",
		"scatter-allgather", "scatter-allgather-ring",
	},
	"allgather": {"", "linear", "bruck", "recursive doubling", "ring", "neighbor"},
}

func algorithmName(op, algorithm string) string {
	for i, name := range numbered[op] {
		if fmt.Sprint(i) == algorithm {
			return algorithm + ", " + name
		}
	}
	return algorithm
}

// build compiles perf.c with the peer's compiler.
func (m *peer) build(ctx context.Context, bed *testbed) error {
	if err := install(ctx, m.programs...); err != nil {
		return err
	}
	m.program = filepath.Join(bed.dir, m.programs[0])
	flags := slices.Concat(m.compile, []string{"-O2", "-Wall", "-Wextra", "-o", m.program, "bench/peers/mpi/perf.c"})
	return compile(ctx, m.programs[0], flags...)
}

// patience bounds the time of one job.
const patience = 90 * time.Second

// measure runs an operation at several sizes, in one job.
func (m *peer) measure(
	ctx context.Context, bed *testbed, op, algorithm string, sizes []int64, often func(n int64) schedule,
) (map[int64]sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ranks := bed.ranksOf(op)
	args, env := m.launch(bed, op, algorithm)
	args = append([]string{bed.host(0), "exec", m.programs[1]}, args...)
	args = append(args, m.program, op)
	for _, n := range sizes {
		s := often(n)
		args = append(args, fmt.Sprintf("%d:%d:%d", n, s.iters, s.warmup))
	}
	cmd := command(ctx, bed.agent, args...)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+bed.dir), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	results := make(map[int64]sample, len(sizes))
	for line := range strings.Lines(stdout.String()) {
		var r struct {
			Ranks int     `json:"ranks"`
			Bytes int64   `json:"bytes"`
			Wrong int64   `json:"wrong"`
			Time  float64 `json:"p50_us"`
			CPU   float64 `json:"cpu_us"`
			Peak  int64   `json:"peak_kib"`
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue // output of the launcher
		}
		if r.Wrong != 0 || r.Ranks != ranks {
			return nil, fmt.Errorf("%s %s: %d wrong bytes among %d ranks; want 0 among %d",
				m.name, op, r.Wrong, r.Ranks, ranks)
		}
		results[r.Bytes] = sample{time: r.Time, cpu: r.CPU, peak: r.Peak << 10}
	}
	if len(results) < len(sizes) {
		return results, fmt.Errorf("%s %s %s: results for %d of %d sizes: %w: %s",
			m.name, op, algorithm, len(results), len(sizes), err, lastLine(stderr.Bytes()))
	}
	return results, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
