//go:build linux && cgo

// Package tests runs MPI programs with liballcast_mpi.so under every MPI that is installed. `make test-mpi` runs it.
package tests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

// timeout ends a job that hangs. It is far above what a loaded machine needs.
const timeout = 3 * time.Minute

// mpi is an implementation of MPI.
type mpi struct {
	name   string
	dir    string // directory of the library
	asan   string // the same under AddressSanitizer
	launch func(env []string, programs ...program) []string
	most   int // ranks; MPICH polls without yielding, so more ranks than processors are slow
	calls  int // of the random program, on more ranks than 2
}

// program is a part of a job: some ranks of one program.
type program struct {
	ranks int
	path  string
	args  []string
}

var mpis = []*mpi{
	{name: "openmpi", most: 9, calls: 150, launch: func(env []string, programs ...program) []string {
		args := []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"}
		for _, m := range []string{
			"btl self,vader", "oob_tcp_if_include lo", "mpi_yield_when_idle 1", "orte_abort_print_stack 0",
		} {
			args = append(append(args, "--mca"), strings.Fields(m)...)
		}
		for i, p := range programs {
			if i > 0 {
				args = append(args, ":")
			}
			for _, e := range env {
				args = append(args, "-x", e)
			}
			args = append(append(args, "-n", strconv.Itoa(p.ranks), p.path), p.args...)
		}
		return args
	}},
	{name: "mpich", most: 4, calls: 100, launch: func(env []string, programs ...program) []string {
		args := []string{"mpiexec.hydra"}
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			args = append(args, "-genv", name, value)
		}
		for i, p := range programs {
			if i > 0 {
				args = append(args, ":")
			}
			args = append(append(args, "-n", strconv.Itoa(p.ranks), p.path), p.args...)
		}
		return args
	}},
}

var build string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("MPI_TESTS") == "" {
		return m.Run() // all tests skip
	}
	var err error
	if build, err = os.MkdirTemp("", "allcast-mpi-"); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(build) }()
	testenv.NoCalibration()
	if err := prepare(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// prepare builds the library for each MPI. The second build, for AddressSanitizer, also packs data in short pieces.
func prepare() error {
	if err := command("make", "-s", "-C", "../../..", "lib", "LIB="+build); err != nil {
		return err
	}
	for _, m := range mpis {
		compiler := "mpicc." + m.name
		if _, err := exec.LookPath(compiler); err != nil {
			continue
		}
		m.dir, m.asan = filepath.Join(build, m.name), filepath.Join(build, m.name+"-asan")
		for dir, flags := range map[string]string{m.dir: "", m.asan: "-fsanitize=address -DPIECE=64"} {
			err := command("make", "-s", "-C", "../../..", "mpi-one", "MPICC="+compiler, "MPI_DIR="+dir, "MPI_FLAGS="+flags)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// each runs a test under each MPI.
func each(t *testing.T, test func(t *testing.T, m *mpi)) {
	t.Helper()
	testenv.NeedVar(t, "MPI_TESTS", "make test-mpi sets it")
	for _, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			if m.dir == "" {
				t.Skipf("mpicc.%s is not installed", m.name)
			}
			test(t, m)
		})
	}
}

// compile compiles a program in C or Fortran and returns its path.
func (m *mpi) compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source)))
	compiler := "mpicc." + m.name
	if filepath.Ext(source) == ".F90" {
		if _, err := exec.LookPath("gfortran"); err != nil {
			t.Skip("gfortran is not installed")
		}
		compiler = "mpif90." + m.name
	} else {
		flags = append(flags, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow", "-pthread")
	}
	args := append([]string{"-g", "-O1", "-o", path, filepath.Join("programs", source)}, flags...)
	if err := command(compiler, args...); err != nil {
		t.Fatal(err)
	}
	return path
}

// job is a run of programs with the library.
type job struct {
	env   []string
	asan  bool
	plain bool // without the library
}

// start returns the command of a job, which ends with the test.
func (j job) start(t *testing.T, m *mpi, programs ...program) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	dir, preload := m.dir, ""
	env := append([]string{"ALLCAST_LIBRARY=" + filepath.Join(build, "liballcast.so")}, j.env...)
	if j.asan {
		runtime, err := exec.Command("gcc", "-print-file-name=libasan.so").Output()
		if err != nil {
			t.Fatal(err)
		}
		// MPI itself leaks, and Go's library installs handlers of signals.
		dir, preload = m.asan, strings.TrimSpace(string(runtime))+":"
		env = append(env, "ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=66")
	}
	if !j.plain {
		env = append(env, "LD_PRELOAD="+preload+filepath.Join(dir, "liballcast_mpi.so"))
	}
	args := m.launch(env, programs...)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // the launcher ends its ranks
	cmd.WaitDelay = 10 * time.Second
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// passes runs a job that must succeed on all ranks, and returns its output.
func (j job) passes(t *testing.T, m *mpi, programs ...program) string {
	t.Helper()
	cmd, out := j.start(t, m, programs...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	ranks := 0
	for _, p := range programs {
		ranks += p.ranks
	}
	for r := range ranks {
		if !strings.Contains(out.String(), fmt.Sprintf("rank %d passed\n", r)) {
			t.Fatalf("rank %d has not passed\n%s", r, out)
		}
	}
	return out.String()
}

// always takes over every call that it can.
var always = []string{"ALLCAST_MPI_THRESHOLD=0", "ALLCAST_MPI=stats"}

// usedMulticast checks the table of statistics.
func usedMulticast(t *testing.T, out string, calls ...string) {
	t.Helper()
	for _, call := range calls {
		found := false
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			found = found || len(f) > 1 && f[0] == call && f[1] != "0"
		}
		if !found {
			t.Errorf("%s has not used multicast:\n%s", call, out)
		}
	}
}

var everyCall = []string{
	"MPI_Bcast", "MPI_Allgather", "MPI_Allgatherv", "MPI_Barrier", "MPI_Ibcast", "MPI_Iallgather", "MPI_Iallgatherv",
}

// TestRandom compares a random program with plain MPI. MPI_CALLS=10000 makes it longer.
func TestRandom(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "random.c")
		for _, ranks := range []int{2, 3, 4, 9} {
			if ranks > m.most {
				t.Logf("left out: %d ranks of %s, which polls without yielding", ranks, m.name)
				continue
			}
			t.Run(strconv.Itoa(ranks), func(t *testing.T) {
				calls := "300"
				if ranks > 2 {
					calls = strconv.Itoa(m.calls)
				}
				if n := os.Getenv("MPI_CALLS"); n != "" {
					calls = n
				}
				out := job{env: always}.passes(t, m, program{ranks, path, []string{strconv.Itoa(ranks), calls, "20000"}})
				usedMulticast(t, out, everyCall...)
			})
		}
	})
}

func TestSanitizer(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "random.c", "-fsanitize=address")
		calls := "100"
		if n := os.Getenv("MPI_CALLS"); n != "" {
			calls = n
		}
		out := job{env: always, asan: true}.passes(t, m, program{2, path, []string{"7", calls, "5000"}})
		usedMulticast(t, out, everyCall...)
	})
}

func TestProgress(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		out := job{env: always}.passes(t, m, program{min(3, m.most), m.compile(t, "progress.c"), nil})
		usedMulticast(t, out, "MPI_Bcast", "MPI_Iallgather", "MPI_Barrier")
	})
}

func TestEdges(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "edges.c")
		out := job{env: always}.passes(t, m, program{min(4, m.most), path, nil})
		usedMulticast(t, out, "MPI_Bcast", "MPI_Barrier", "MPI_Ibcast")
	})
}

// Joining at MPI_Init, thresholds that are measured, and a threshold above all calls.
func TestSettings(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "edges.c")
		job{env: []string{"ALLCAST_MPI=eager,stats"}}.passes(t, m, program{2, path, nil})
		job{}.passes(t, m, program{2, path, nil})
		out := job{env: []string{"ALLCAST_MPI=stats", "ALLCAST_MPI_THRESHOLD=1073741824"}}.passes(t, m, program{2, path, nil})
		if !strings.Contains(out, "smaller than the threshold") {
			t.Errorf("the table does not say why calls passed through:\n%s", out)
		}
		job{env: []string{"ALLCAST_MPI=off"}}.passes(t, m, program{2, path, nil})
		for _, bad := range []string{"ALLCAST_MPI=fast", "ALLCAST_MPI_THRESHOLD=lots"} {
			cmd, out := job{env: []string{bad}}.start(t, m, program{2, path, nil})
			if err := cmd.Run(); err == nil || !strings.Contains(out.String(), bad+": want ") {
				t.Errorf("%s: got %v\n%s", bad, err, out)
			}
		}
	})
}

// Without multicast or without the Go library, there is one warning, and all calls pass through.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "edges.c")
		for env, want := range map[string]string{
			"ALLCAST_IFNAME=missing0":      "calls on a communicator of 2 ranks pass through to MPI",
			"ALLCAST_LIBRARY=/nonexistent": "cannot load /nonexistent",
		} {
			out := job{env: append([]string{env}, always...)}.passes(t, m, program{2, path, nil})
			if n := strings.Count(out, want); n != 1 {
				t.Errorf("%s: got %d warnings with %q, want 1:\n%s", env, n, want, out)
			}
		}
	})
}

func TestFortran(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		f90 := m.compile(t, "fortran.F90")
		f08 := m.compile(t, "fortran.F90", "-DF08")
		c := m.compile(t, "meet.c")
		jobs := [][]program{{{2, f90, nil}}, {{2, f08, nil}}, {{1, c, nil}, {1, f90, nil}}, {{1, f08, nil}, {1, c, nil}}}
		for _, programs := range jobs {
			out := job{env: always}.passes(t, m, programs...)
			usedMulticast(t, out, "MPI_Bcast", "MPI_Allgather", "MPI_Ibcast", "MPI_Iallgatherv")
		}
	})
}

// A killed rank ends the job. The errors of the others name it, unless the launcher is faster.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		cmd, out := job{env: always}.start(t, m, program{2, m.compile(t, "failure.c"), []string{"kill"}})
		if err := cmd.Run(); err == nil {
			t.Errorf("the job succeeded:\n%s", out)
		}
		if text := out.String(); strings.Contains(text, " got: ") && !strings.Contains(text, "lost: rank 1") {
			t.Errorf("an error does not name rank 1:\n%s", text)
		}
	})
}

// A rank that stops for a while fails nothing.
func TestStopped(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		t.Parallel() // both MPIs at once: the test mostly sleeps
		file := filepath.Join(t.TempDir(), "pid")
		path := m.compile(t, "failure.c")
		cmd, out := job{env: always}.start(t, m, program{2, path, []string{"stop", file}})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		stopped := testenv.Soon(func() bool {
			text, _ := os.ReadFile(file)
			if !bytes.HasSuffix(text, []byte("\n")) {
				return false
			}
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return bytes.Contains(stat, []byte(") T "))
		})
		if stopped {
			time.Sleep(12 * time.Second) // longer than the default of ALLCAST_TIMEOUT, which must not count
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
		if err := cmd.Wait(); err != nil || !stopped {
			t.Errorf("stopped: %v, the job: %v\n%s", stopped, err, out)
		}
	})
}

// Programs that are not MPI programs do not load MPI or Go.
func TestOtherPrograms(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		cmd := exec.Command("cat", "/proc/self/maps")
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(m.dir, "liballcast_mpi.so"))
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "liballcast_mpi.so") {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, object := range []string{"liballcast.so", "liballcast_mpi_core", "libmpi.so", "libmpich.so"} {
			if strings.Contains(string(out), object) {
				t.Errorf("%s is loaded", object)
			}
		}
	})
}

// TestCost logs the time of calls that pass through, with the library and without.
func TestCost(t *testing.T) {
	each(t, func(t *testing.T, m *mpi) {
		t.Helper()
		path := m.compile(t, "cost.c")
		for name, j := range map[string]job{"with": {}, "without": {plain: true}} {
			for line := range strings.Lines(j.passes(t, m, program{2, path, nil})) {
				if strings.HasPrefix(line, "ns per call") {
					t.Logf("%s: %s", name, line)
				}
			}
		}
	})
}
