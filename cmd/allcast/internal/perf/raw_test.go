package perf

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// rawLines reads a log and checks its header.
func rawLines(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines[0], ",") + "\n"; got != bench.RawHeader {
		t.Errorf("the header is %q", got)
	}
	return lines[1:]
}

// The log has one line per rank and measured iteration. No other file is left.
func TestRaw(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raw.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.JSON(t, "perf allgather+reduce-scatter --ranks 3 --algo mcast+ring,ring+ring -b 64 -e 128 "+
		"-f 2 -n 2 -w 1 --overlap --json --raw "+path)
	seen := map[string]bool{}
	lines := rawLines(t, path)
	for _, l := range lines {
		seen[strings.Join(l[:5], " ")] = true
		start, err := strconv.ParseInt(l[5], 10, 64)
		took, err2 := strconv.ParseInt(l[6], 10, 64)
		if err != nil || err2 != nil || start <= 0 || took <= 0 {
			t.Errorf("%v", l)
		}
	}
	for _, rank := range strings.Fields("0 1 2") {
		for _, algo := range strings.Fields("mcast+ring ring+ring") {
			for _, n := range strings.Fields("64 128") {
				for _, iteration := range strings.Fields("0 1") {
					if key := strings.Join([]string{rank, bench.Pair, algo, n, iteration}, " "); !seen[key] {
						t.Errorf("no line of %s", key)
					}
				}
			}
		}
	}
	if len(lines) != 24 {
		t.Errorf("%d lines, want 24", len(lines))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v left behind: %v", left, err)
	}
}

// OSU's method logs the times of the root too, although they do not count.
func TestRawRoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raw.csv")
	clitest.JSON(t, "perf broadcast --ranks 2 --osu --algo mcast -b 64 -n 1 -w 0 --json --raw "+path)
	if lines := rawLines(t, path); len(lines) != 2 || lines[0][0] != "0" || lines[0][6] == "0" {
		t.Errorf("%v", lines)
	}
}

// A log that cannot be written fails the job, but the results are printed.
func TestRawFull(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("no device that is full:", err)
	}
	o := clitest.Finish(t, clitest.Process(t, strings.Fields("perf allgather --ranks 2 -b 64 -n 1 --json --raw "+full)...))
	if o.Status != cli.StatusFailed || !strings.Contains(o.Stderr, "raw times") || len(o.Objects(t)) != 1 {
		t.Errorf("status %d: %s%s", o.Status, o.Stdout, o.Stderr)
	}
}
