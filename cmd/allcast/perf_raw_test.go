package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rawLines reads a log and checks its form.
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
	if got := strings.Join(lines[0], ",") + "\n"; got != perfRawHeader {
		t.Errorf("the header is %q", got)
	}
	return lines[1:]
}

// One line for each rank and measured iteration, no more, and no other file.
func TestPerfRaw(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raw.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	jsonOf(t, "perf allgather+reduce-scatter --ranks 3 --algo mcast+ring,ring+ring -b 64 -e 128 -f 2 -n 2 -w 1 --overlap --json --raw "+path)
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
	for _, rank := range fields("0 1 2") {
		for _, algo := range fields("mcast+ring ring+ring") {
			for _, n := range fields("64 128") {
				for _, iteration := range fields("0 1") {
					if key := strings.Join([]string{rank, perfPair, algo, n, iteration}, " "); !seen[key] {
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

// Under OSU's method the root is timed as well; it only does not count.
func TestPerfRawRoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raw.csv")
	jsonOf(t, "perf broadcast --ranks 2 --osu --algo mcast -b 64 -n 1 -w 0 --json --raw "+path)
	if lines := rawLines(t, path); len(lines) != 2 || lines[0][0] != "0" || lines[0][6] == "0" {
		t.Errorf("%v", lines)
	}
}

// A log that cannot be written is a failure, and what could be measured is still there.
func TestPerfRawFull(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("no device that is full:", err)
	}
	o := finish(t, process(t, fields("perf allgather --ranks 2 -b 64 -n 1 --json --raw "+full)...))
	if o.status != statusFailed || !strings.Contains(o.stderr, "raw times") || len(o.objects(t)) != 1 {
		t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
}

// A job that fails leaves the file of the one before alone.
func TestPerfRawOfFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raw.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := process(t, fields("perf barrier --ranks 2 --json --raw "+path)...)
	cmd.Env = append(cmd.Env, "ALLCAST_TUNING=nonsense")
	if o := finish(t, cmd); o.status != statusUsage {
		t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v left behind: %v", left, err)
	}
}
