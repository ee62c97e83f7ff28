//go:build linux && cgo

package tests

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestFork(t *testing.T) {
	env := []string{"ALLCAST_TIMEOUT=1h"}
	t.Run("child", func(t *testing.T) { job{ranks: 3, args: []string{"child"}, env: env}.start(t, "fork") })
	t.Run("killed parent", func(t *testing.T) {
		job{ranks: 3, args: []string{"die"}, env: env, dies: syscall.SIGKILL, died: 1}.start(t, "fork")
	})
}

// Exiting is leaving: it neither hangs nor lets other ranks wait for a timeout.
func TestExit(t *testing.T) {
	env := []string{"ALLCAST_TIMEOUT=1h"}
	for _, how := range []string{"all", "stackless"} {
		t.Run(how, func(t *testing.T) {
			// AddressSanitizer installs alternate stacks of its own.
			out := job{ranks: 3, args: []string{how}, env: env, plain: how == "stackless"}.start(t, "exit")
			if strings.Contains(out, "level=WARN") {
				t.Errorf("ranks that all exit are no failure:\n%s", out)
			}
		})
	}
	for _, how := range []string{"one", "close"} {
		t.Run(how, func(t *testing.T) { job{ranks: 3, args: []string{how}, env: env}.start(t, "exit") })
	}
}

func TestSignals(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			job{ranks: 2, args: []string{plain("liballcast.so"), when}, plain: true}.start(t, "signals")
		})
	}
}

// Joining changes the flags of handlers, and must not undo what another thread does to them.
func TestHandlers(t *testing.T) { job{ranks: 1, plain: true}.start(t, "handlers") }

// Without handlers, signals have their default effect.
func TestDefaultSignals(t *testing.T) {
	for _, c := range []struct {
		arg  string
		ends syscall.Signal
	}{
		{"2", syscall.SIGINT},
		{"15", syscall.SIGTERM},
		{"1", syscall.SIGHUP},
		{"6", syscall.SIGABRT},
		{"fault", syscall.SIGSEGV},
		{"pipe", syscall.SIGPIPE},
		{"fork", 0},
		{"log", 0},
	} {
		t.Run(c.arg, func(t *testing.T) {
			job{ranks: 1, args: []string{c.arg}, plain: true, dies: c.ends, died: 0}.start(t, "defaults")
		})
	}
}

// Python's faulthandler describes a fault in C code, whether it was enabled before or after the library was loaded.
func TestFaulthandler(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	const load = `import ctypes, faulthandler, sys
def load():
    library = ctypes.CDLL(sys.argv[1])
    options, comm = ctypes.c_uint64(), ctypes.c_uint64()
    assert library.allcast_options_new(ctypes.byref(options)) == 0
    assert library.allcast_options_set(options, b"size", b"1", ctypes.c_size_t(1)) == 0
    assert library.allcast_join(options, None, ctypes.byref(comm)) == 0
    assert library.allcast_barrier(comm, None) == 0
`
	for name, order := range map[string]string{
		"before": "faulthandler.enable(); load()", "after": "load(); faulthandler.enable()",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(python, "-c", load+order+"; ctypes.string_at(0)", plain("liballcast.so")).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV {
				t.Errorf("python3 ended with: %v", err)
			}
			if !strings.Contains(string(out), "Fatal Python error: Segmentation fault") {
				t.Errorf("faulthandler printed nothing:\n%s", out)
			}
		})
	}
}
