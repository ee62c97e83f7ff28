//go:build unix

package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

// runtimeDir gives the test its own runtime directory and returns the path of the socket directory in it.
func runtimeDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(testenv.SocketDir(t), fmt.Sprintf("allcast-%d", os.Getuid()))
}

// source is a minimal Source. State blocks until wait is closed, if it is set.
type source struct{ wait chan struct{} }

func (s source) State(events int) State {
	if s.wait != nil {
		<-s.wait
	}
	return State{Job: "cafe", Rank: 3, Answers: true, Events: make([]Record, events)}
}

func (source) Metrics() Metrics { return Metrics{Job: "cafe", Rank: 3} }

func serve(t *testing.T, src Source, l net.Listener) *Server {
	t.Helper()
	s := NewServer(src, slog.New(slog.DiscardHandler))
	s.Serve(l)
	t.Cleanup(s.Close)
	return s
}

func TestAskLocal(t *testing.T) {
	dir := runtimeDir(t)
	l, err := ListenLocal("cafe", 3)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, source{}, l)
	found := Find()
	if len(found) != 1 || found[0].Pid != os.Getpid() || found[0].Job != "cafe" || found[0].Rank != 3 || found[0].Gone() {
		t.Fatalf("%+v", found)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	state, err := Ask(t.Context(), Addr{"unix", found[0].Path}, 4)
	if err != nil || state.Rank != 3 || len(state.Events) != 4 {
		t.Errorf("%+v: %v", state, err)
	}
	s.Close()
	if found := Find(); len(found) != 0 {
		t.Errorf("left behind: %+v", found)
	}
}

// The kernel accepts connections for a stopped process, but nothing answers.
func TestAskInBoundedTime(t *testing.T) {
	runtimeDir(t)
	l, err := ListenLocal("cafe", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Ask(ctx, Addr{"unix", l.Addr().String()}, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestAskForeignServer(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = h.Serve(other) }()
	defer func() { _ = h.Close() }()
	if _, err := Ask(t.Context(), Addr{"tcp", other.Addr().String()}, 0); err == nil ||
		!strings.Contains(err.Error(), "is it a rank") {
		t.Error(err)
	}
}

func TestServerOnTCP(t *testing.T) {
	l, err := Listen(Addr{"tcp", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, source{}, l)
	base := "http://" + l.Addr().String()
	for path, want := range map[string]string{
		"/metrics":         `allcast_info{job="cafe",rank="3"`,
		Path + "?events=1": `"rank":3`,
	} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v\n%s", path, resp.Status, err, text)
		}
	}
	resp, err := http.Post(base+"/metrics", "text/plain", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

// The server closes excess connections at once, and earlier connections keep working.
func TestServerBoundsConnections(t *testing.T) {
	l, err := Listen(Addr{"tcp", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, source{}, l)
	var conns []net.Conn
	for range maxConns + 1 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	if _, err := conns[maxConns].Read(make([]byte, 1)); err == nil {
		t.Error("the server sent data on a connection above the limit")
	}
	if _, err := io.WriteString(conns[0], "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conns[0]); err != nil || !strings.Contains(string(text), "allcast_info") {
		t.Errorf("%v: %s", err, text)
	}
}

// stale creates a socket file that no process listens on, as a killed process leaves it.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

// deadPid returns the pid of a process that has ended.
func deadPid(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	return cmd.Process.Pid
}

func TestStaleSocketsAreRemoved(t *testing.T) {
	dir := runtimeDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, fmt.Sprintf("%d-cafe-1.sock", deadPid(t)))
	reborn := filepath.Join(dir, fmt.Sprintf("%d-cafe-3.sock", os.Getpid()))
	// The parent process is alive, so it may be about to listen.
	starting := filepath.Join(dir, fmt.Sprintf("%d-cafe-2.sock", os.Getppid()))
	other := filepath.Join(dir, "notes.sock")
	for _, path := range []string{gone, reborn, starting, other} {
		stale(t, path)
	}
	l, err := ListenLocal("cafe", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for path, want := range map[string]bool{gone: false, reborn: true, starting: true, other: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it to exist: %v", path, err, want)
		}
	}
}

func TestUnsafeDirectoriesAreRefused(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"open":    func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"a link":  func(dir string) error { return os.Symlink(filepath.Dir(dir), dir) },
		"no dir":  func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"another": nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := runtimeDir(t)
			if make == nil {
				if os.Getuid() != 0 {
					t.Skip("needs root")
				}
				make = func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345)) }
			}
			if err := make(dir); err != nil {
				t.Fatal(err)
			}
			if checkOwn(dir) == nil {
				t.Error("checkOwn accepts the directory")
			}
			if found := Find(); len(found) != 0 {
				t.Errorf("Find reads an unsafe directory: %v", found)
			}
		})
	}
}

func TestListenUnix(t *testing.T) {
	runtimeDir(t)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	path := filepath.Join(dir, "m.sock")
	stale(t, path)
	l, err := Listen(Addr{"unix", path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := Listen(Addr{"unix", path}); err == nil {
		t.Error("Listen took over a socket that is in use")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Addr{"unix", file}); err == nil {
		t.Error("Listen accepted a regular file as a socket")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestParseAddr(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"127.0.0.1:9400", "127.0.0.1:9402"},
		{":9400", ":9402"},
		{"[::1]:9400", "[::1]:9402"},
		{"127.0.0.1:0", "127.0.0.1:0"},
		{"unix:/x/{rank}-{local_rank}.sock", "unix:/x/10-2.sock"},
		{"9400", ""},
		{"host", ""},
		{"host:", ""},
		{"host:http", ""},
		{"host:65536", ""},
		{"host:65535", ""},
		{"unix:", ""},
		{"unix:/x/{pid}", ""},
	} {
		a, err := ParseAddr(c.spec, 10, 2)
		if (err == nil) != (c.want != "") || (err == nil && a.String() != c.want) {
			t.Errorf("%s: %v, %v; want %q", c.spec, a, err, c.want)
		}
	}
}

func TestParseSocket(t *testing.T) {
	for name, want := range map[string]bool{
		"12-cafe-3.sock": true, "12-cafe-3": false, "x-cafe-3.sock": false, "12-cafe.sock": false,
		"12-cafe-x.sock": false, "0-cafe-1.sock": false, "-1-cafe-1.sock": false,
	} {
		if _, ok := parseSocket(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}
