//go:build linux && cgo

// Package tests runs C programs that use liballcast, with several ranks as processes. The programs and the library are
// compiled with AddressSanitizer, so that the sanitizer also checks how Go code uses the memory of C. Leaks of C memory
// fail a program too. No suppressions are needed: the Go runtime registers its heap with the sanitizer.
package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/launch"
	"github.com/allcast/allcast/internal/testenv"
)

// timeout ends a job that hangs. It is far above what a loaded machine needs.
const timeout = 3 * time.Minute

// build is the directory of the library and the programs.
var build string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if build, err = os.MkdirTemp("", "allcast-c-"); err == nil {
		defer func() { _ = os.RemoveAll(build) }()
		testenv.NoCalibration()
		testenv.PatientRanks()
		err = command("make", "-s", "-C", "../../..", "lib", "LIB="+plain(""))
		if err == nil {
			err = command("go", "build", "-asan", "-buildmode=c-shared", "-o", filepath.Join(build, "liballcast.so"), "..")
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// plain returns the path of a file of the library that users get, without sanitizers.
func plain(file string) string { return filepath.Join(build, "plain", file) }

// command runs a command. Its error contains the output.
func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// compiled remembers the programs that were compiled.
var compiled sync.Map // name to func() error

// program compiles a program unless that was done before, and returns its path. Tests of signals use the library
// without sanitizers, which install handlers themselves.
func program(t testing.TB, name string, sanitize bool) string {
	t.Helper()
	dir, extra := filepath.Dir(plain("x")), []string{}
	if sanitize {
		dir, extra = build, []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	}
	path := filepath.Join(dir, name)
	once, _ := compiled.LoadOrStore(path, sync.OnceValue(func() error {
		return command("gcc", append(extra, "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror",
			"-fno-omit-frame-pointer", "-I../include", "-o", path, filepath.Join("programs", name+".c"),
			"-L"+dir, "-lallcast", "-Wl,--as-needed,-rpath,"+dir, "-pthread", "-ldl")...)
	}))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

// job describes a run of a program.
type job struct {
	ranks int
	args  []string
	env   []string
	plain bool           // without sanitizers
	dies  syscall.Signal // signal that ends one of the ranks; 0: none
	died  int            // that rank
}

// start runs a program until all ranks have ended. Every rank that does not die must have passed.
func (j job) start(t testing.TB, name string) string {
	t.Helper()
	var out, messages bytes.Buffer
	cfg := launch.Config{
		Ranks: j.ranks, Command: append([]string{program(t, name, !j.plain)}, j.args...), Stdout: &out, Stderr: &messages,
		Env: append(append(os.Environ(), "UBSAN_OPTIONS=print_stacktrace=1"), j.env...), Notice: timeout,
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := launch.Run(ctx, cfg)
	var failed *launch.RankError
	expected := j.dies != 0 && errors.As(err, &failed) && failed.Rank == j.died && failed.Signal == j.dies
	if (err != nil || j.dies != 0) && !expected {
		t.Errorf("the job ended with: %v", err)
	}
	for rank := range j.ranks {
		died := j.dies != 0 && rank == j.died
		if !died && !strings.Contains(out.String(), fmt.Sprintf("rank %d passed\n", rank)) {
			t.Errorf("rank %d has not passed", rank)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%smessages:\n%s", &out, &messages)
	}
	return out.String() + messages.String()
}
