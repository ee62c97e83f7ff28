package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// recording is a simulator that writes to the capture.
func recording(cfg sim.Config) (*sim.Result, error) {
	if _, err := cfg.Pcap.Write([]byte("packets")); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return fine(cfg)
}

func capturing(path string) []string {
	return append(strings.Fields("sim broadcast --topology star:2 --pcap"), path)
}

func checkFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
}

func checkContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

func TestPcap(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.pcap")
	for range 2 { // the second replaces the first
		if o := execute(recording, capturing(path)...); o.Status != cli.StatusOK {
			t.Fatalf("status %d: %s", o.Status, o.Stderr)
		}
		checkFiles(t, dir, "x.pcap")
		checkContent(t, path, "packets")
	}
}

// A refused run leaves an existing file alone and creates no other.
func TestPcapOfRefusedRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.pcap")
	refuse := func(cfg sim.Config) (*sim.Result, error) {
		_, _ = cfg.Pcap.Write([]byte("half"))
		return nil, sim.ErrConfig
	}
	if o := execute(refuse, capturing(path)...); o.Status != cli.StatusUsage {
		t.Errorf("status %d, want %d", o.Status, cli.StatusUsage)
	}
	checkFiles(t, dir)
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	execute(refuse, capturing(path)...)
	checkFiles(t, dir, "x.pcap")
	checkContent(t, path, "old")
}

// The capture of a failed collective is kept, because it shows what happened.
func TestPcapOfFailedCollective(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	o := execute(func(cfg sim.Config) (*sim.Result, error) {
		r, err := recording(cfg)
		r.Errors = []sim.RankError{{Reason: "lost"}}
		return r, err
	}, capturing(path)...)
	if o.Status != cli.StatusFailed {
		t.Errorf("status %d, want %d", o.Status, cli.StatusFailed)
	}
	checkContent(t, path, "packets")
}

// A full disk fails the job, whatever error the simulator returns. It is not a usage error.
func TestPcapWriteFails(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	flood := func(cfg sim.Config) (*sim.Result, error) {
		if _, err := cfg.Pcap.Write(make([]byte, 2<<20)); err != nil {
			return nil, err
		}
		return fine(cfg)
	}
	for _, simulate := range []func(sim.Config) (*sim.Result, error){flood, recording} {
		o := execute(simulate, capturing("/dev/full")...)
		if o.Status != cli.StatusFailed || !strings.Contains(o.Stderr, "writing the capture") {
			t.Errorf("status %d, want %d: %s", o.Status, cli.StatusFailed, o.Stderr)
		}
	}
	if info, err := os.Stat("/dev/full"); err != nil || info.Mode().IsRegular() {
		t.Error("/dev/full was replaced by a file")
	}
}

func TestPcapThroughSymlink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	execute(recording, capturing(link)...)
	checkContent(t, target, "packets")
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("the link was replaced: %q, %v", got, err)
	}
}
