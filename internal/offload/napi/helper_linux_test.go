package napi

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// registryVar makes the test's program a helper that uses this registry.
const registryVar = "ALLCAST_TEST_NAPI_REGISTRY"

// rounds is how often a helper joins and leaves when it is told to loop.
const rounds = 10

func TestMain(m *testing.M) {
	if dir := os.Getenv(registryVar); dir != "" {
		if err := help(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// help does what its input says, and answers each line. It ends with its input, so no helper outlives
// the test.
func help(dir string, in io.Reader, out io.Writer) error {
	ifi, err := net.InterfaceByName("left")
	if err != nil {
		return err
	}
	undo := func() error { return nil }
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch lines.Text() {
		case "join":
			undo, err = dedicate(dir, ifi, []int{0})
		case "leave":
			err = undo()
		case "loop":
			err = loop(dir, ifi, func() { _, _ = fmt.Fprintln(out, "round") })
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, "done", lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

// loop joins and leaves, and checks each time that the settings are on in between.
func loop(dir string, ifi *net.Interface, round func()) error {
	for range rounds {
		undo, err := dedicate(dir, ifi, []int{0})
		if err != nil {
			return err
		}
		now, err := readSettings(ifi)
		if err != nil {
			return err
		}
		if !now.equal(applied) {
			return fmt.Errorf("settings of a user's interface are %+v", now)
		}
		if err := undo(); err != nil {
			return err
		}
		round()
	}
	return nil
}

// process is a helper that runs in the test's namespace.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), registryVar+"="+dir)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil { // in the namespace of this thread
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill returns after the kernel has dropped the process's locks.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // says that it was killed
}

func (p *process) tell(what string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("process %d: %v", p.cmd.Process.Pid, err)
	}
	return strings.TrimSpace(line)
}

// do waits until the process has done something.
func (p *process) do(what string) {
	p.t.Helper()
	p.tell(what)
	for p.line() != "done "+what {
	}
}

// inNamespace runs f on a new thread in the namespace of the calling one.
func inNamespace(t *testing.T, f func() error) <-chan error {
	t.Helper()
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer func() { _ = ns.Close() }()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return done
}

var applied = settings{Threaded: threaded, Features: map[string]bool{"rx-gro": true, "rx-udp-gro-forwarding": true}}

func (s settings) equal(o settings) bool {
	return s.Threaded == o.Threaded && maps.Equal(s.Features, o.Features)
}

func readSettings(ifi *net.Interface) (settings, error) {
	dev, err := openDevice(ifi)
	if err != nil {
		return settings{}, err
	}
	defer dev.close()
	return dev.settings()
}

func settingsOf(t *testing.T, ifi *net.Interface) settings {
	t.Helper()
	s, err := readSettings(ifi)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkSettings(t *testing.T, ifi *net.Interface, want settings, when string) {
	t.Helper()
	if now := settingsOf(t, ifi); !now.equal(want) {
		t.Errorf("%s: settings are %+v, want %+v", when, now, want)
	}
}

// registryDir names a registry that does not exist yet.
func registryDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "registry")
}

// checkFiles checks how many files a registry has.
func checkFiles(t *testing.T, dir string, want int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != want {
		t.Errorf("the registry has %v, want %d files: %v", files, want, err)
	}
}

func mustDedicate(t *testing.T, dir string, ifi *net.Interface) (undo func()) {
	t.Helper()
	f, err := dedicate(dir, ifi, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := f(); err != nil {
			t.Error(err)
		}
	}
}
