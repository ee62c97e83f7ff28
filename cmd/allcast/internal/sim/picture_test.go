package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/testenv"
)

// drawn runs a real simulation with --html and returns the page.
func drawn(t *testing.T, file, args string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	o := execute(sim.Run, append(strings.Fields("sim "+args+" --html"), path)...)
	if o.Status != cli.StatusOK {
		t.Fatalf("sim %s: status %d: %s", args, o.Status, o.Stderr)
	}
	checkFiles(t, filepath.Dir(path), file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPicture(t *testing.T) {
	for _, c := range []struct {
		args  string
		algos []string
	}{
		{"broadcast --topology star:4", []string{"mcast"}},
		{"broadcast --topology fat-tree:16,4,2 --algo mcast,binomial,knomial --root 3", []string{
			"mcast", "binomial",
			"knomial",
		}},
		{"allgather --topology fat-tree3:12,4 --algo mcast,ring --loss 1%", []string{"mcast", "ring"}},
		{"allgather --topology star:3 --counts 1M,0,4K", []string{"mcast"}},
		{"reduce-scatter --topology fat-tree:16,4,2 --algo ring,inc", []string{"ring", "inc"}},
		{"allreduce --topology star:8 --bytes 1M --algo ring,inc", []string{"ring", "inc"}},
		{"barrier --topology star:4", []string{"dissemination"}},
		{"broadcast --topology star:1", []string{"mcast"}},
	} {
		page := drawn(t, "x.html", c.args)
		for _, algo := range c.algos {
			if !strings.Contains(page, "<h3>"+algo+" ") {
				t.Errorf("sim %s: no picture of %s", c.args, algo)
			}
		}
		if n := strings.Count(page, `<svg class="tree"`); n != len(c.algos) {
			t.Errorf("sim %s: %d pictures, want %d", c.args, n, len(c.algos))
		}
	}
}

// The totals on the page are those in the output.
func TestPictureTotals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.html")
	const args = "sim allgather --topology fat-tree:16,4,2 --algo mcast,ring --json --html"
	o := execute(sim.Run, append(strings.Fields(args), path)...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range o.Objects(t) {
		for _, name := range []string{"link_bytes", "payload_link_bytes", "link_bytes_bound"} {
			if want := fmt.Sprintf(`<data value="%.0f"`, line[name]); !strings.Contains(string(data), want) {
				t.Errorf("%s: the page has no %s", name, want)
			}
		}
		if _, there := line["ByLink"]; there {
			t.Error("the JSON has bytes by link")
		}
	}
}

// The same seed gives the same page, whatever the names of the output files.
func TestPictureIsReproducible(t *testing.T) {
	const args = "allgather --topology fat-tree:16,4,2 --algo mcast,ring --loss 2%"
	first := drawn(t, "a.html", args)
	if second := drawn(t, "b.html", args); first != second {
		t.Error("two pages of one simulation differ")
	}
	if !strings.Contains(first, "<pre>allcast sim "+args+"</pre>") {
		t.Errorf("the page does not say how to make it again: %s", regexp.MustCompile(`<pre>.*`).FindString(first))
	}
	if other := drawn(t, "a.html", args+" --seed 2"); first == other {
		t.Error("another seed gives the same page")
	}
}

func TestWithoutFiles(t *testing.T) {
	got := withoutFiles(strings.Fields(
		"sim broadcast --json --html a --topology star:2 --html=b --pcap c --seed 3 --html"))
	if want := "sim broadcast --topology star:2 --seed 3"; strings.Join(got, " ") != want {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// For the paper's testbed, the page also has the paper's numbers.
func TestPictureBesidePaper(t *testing.T) {
	page := drawn(t, "x.html", "broadcast --topology fat-tree:188,12,6 --algo mcast,knomial")
	if !strings.Contains(page, "1.5× to 2× less traffic") {
		t.Error("the page has no numbers of the paper")
	}
}

// The page of a failed collective is kept, because it shows what happened.
func TestPictureOfFailedCollective(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.html")
	o := execute(sim.Run, append(strings.Fields("sim broadcast --topology star:4 --bytes 1M --crash 2@1us --html"),
		path)...)
	data, err := os.ReadFile(path)
	if o.Status != cli.StatusFailed || err != nil || !strings.Contains(string(data), "Failed on ") {
		t.Errorf("status %d, %v: the page does not say what failed: %s", o.Status, err, o.Stderr)
	}
}

func TestPictureUsage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"star:4 --html /no/such/directory/x.html", "no such file"},
		{"star:4 --html " + dir, "is a directory"},
		{"star:4 --html x --pcap x", "same file"},
		{"fat-tree3:16384,64 --html " + dir + "/x.html", "a page shows at most"},
	} {
		o := execute(fine, strings.Fields("sim broadcast --topology "+c.args)...)
		if o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, c.want) || len(o.configs) > 0 {
			t.Errorf("%s: status %d, %q does not say %q", c.args, o.Status, o.Stderr, c.want)
		}
	}
	checkFiles(t, dir)
}

func TestPictureOfRefusedRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.html")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse := func(sim.Config) (*sim.Result, error) { return nil, sim.ErrConfig }
	execute(refuse, append(strings.Fields("sim broadcast --topology star:2 --html"), path)...)
	checkFiles(t, dir, "x.html")
	checkContent(t, path, "old")
}

func TestPictureOnFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	o := execute(sim.Run, strings.Fields("sim broadcast --topology star:2 --html /dev/full")...)
	if o.Status != cli.StatusFailed || !strings.Contains(o.Stderr, "writing the page") {
		t.Errorf("status %d: %s", o.Status, o.Stderr)
	}
}

// An interrupted run leaves neither page nor capture.
func TestPictureInterrupted(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		cmd := clitest.Process(t, strings.Fields(
			"sim allgather --topology fat-tree3:1024,32 --bytes 4M --html "+dir+"/x.html --pcap "+dir+"/x.pcap")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitForFiles(t, cmd, dir, 2)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() != syscall.SIGINT {
			t.Errorf("ended with %v, want the signal", cmd.ProcessState)
		}
		checkFiles(t, dir)
	}
}

// waitForFiles waits until the process has created its temporary files.
func waitForFiles(t *testing.T, cmd *exec.Cmd, dir string, n int) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == n {
			return
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("%d files did not appear", n)
}
