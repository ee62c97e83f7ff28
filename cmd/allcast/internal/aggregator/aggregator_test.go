//go:build unix

package aggregator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/testenv"
)

const key = "000102030405060708090a0b0c0d0e0f"

// A daemon is a process that aggregates.
type daemon struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	addr string
}

// start starts the command and waits until it listens.
func start(t *testing.T, args ...string) *daemon {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"aggregator", "--json", "--site-key-file", file, "--listen", "127.0.0.1:0"}, args...)
	d := &daemon{cmd: clitest.Process(t, args...)}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stderr = &bytes.Buffer{}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	d.out = bufio.NewReader(out)
	var first listening
	line := d.line(t)
	clitest.CheckLine(t, "aggregator: listening", line)
	if err := json.Unmarshal([]byte(line), &first); err != nil || first.Event != "listening" || first.Schema != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	d.addr = first.Addr
	return d
}

func (d *daemon) line(t *testing.T) string {
	t.Helper()
	line, err := d.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v; %v", err, d.cmd.Stderr)
	}
	return line
}

// attach opens the Ports of a job with two ranks.
func attach(t *testing.T, tree string) []*aggregate.Port {
	t.Helper()
	parsed, err := inc.ParseTree(tree, 2)
	if err != nil {
		t.Fatal(err)
	}
	site := make([]byte, 16)
	for i := range site {
		site[i] = byte(i)
	}
	ports := make([]*aggregate.Port, 2)
	for r := range ports {
		if ports[r], err = aggregate.Open(aggregate.PortConfig{
			Tree: parsed, Rank: r, SiteKey: site, Job: "cafe", Session: 9, Secret: []byte("a secret of some length"),
			Local: netip.MustParseAddr("127.0.0.1"), Chunk: 1024, Window: 32,
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ports[r].Close() })
	}
	return ports
}

// Two processes aggregate for a job. Inspect and the metrics show it, and SIGTERM ends them in order.
func TestServe(t *testing.T) {
	testenv.SocketDir(t)
	metrics := filepath.Join(t.TempDir(), "m")
	top := start(t, "--metrics", "unix:"+metrics)
	leaf := start(t, "--parent", top.addr, "--cores", "1")
	for _, p := range attach(t, fmt.Sprintf("%s=0-1>%s;%s", leaf.addr, top.addr, top.addr)) {
		if a := p.Wait(t.Context()); a.Window != 32 {
			t.Fatalf("%+v", a)
		}
	}
	o := clitest.Run(&table{}, "inspect")
	for _, want := range []string{"aggregator", top.addr, leaf.addr, "cafe", "1/1", "2/2", "ready"} {
		if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, want) {
			t.Errorf("inspect: no %q in %+v", want, o)
		}
	}
	for _, target := range []string{fmt.Sprint(leaf.cmd.Process.Pid), "unix:" + metrics} {
		o = clitest.Run(&table{}, "inspect", target)
		if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "job cafe, session 9, 2 ranks") {
			t.Errorf("inspect %s: %+v", target, o)
		}
	}
	text := get(t, metrics)
	testenv.Promtool(t, text, "check", "metrics")
	for _, want := range []string{
		"allcast_aggregator_jobs 1\n", `allcast_aggregator_job_usable{job="cafe",session="9"} 1`,
		`allcast_aggregator_connections_total{outcome="attached"} 1`,
		`allcast_aggregator_ignored_datagrams_total{reason="forged"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the metrics:\n%s", want, text)
		}
	}
	for _, d := range []*daemon{leaf, top} {
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		var last stopped
		line := d.line(t)
		clitest.CheckLine(t, "aggregator: stopped", line)
		err := json.Unmarshal([]byte(line), &last)
		if err != nil || last.Event != "stopped" || last.State.Addr != d.addr {
			t.Errorf("%+v, %v", last, err)
		}
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("%v: %v", err, d.cmd.Stderr)
		}
	}
}

func get(t *testing.T, socket string) string {
	t.Helper()
	c := http.Client{Timeout: testenv.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	r, err := c.Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
