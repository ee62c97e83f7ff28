package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDump(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "created", "on", "demand")
	d, err := NewDumper(dir, "cafe", 5)
	if err != nil {
		t.Fatal(err)
	}
	want := &Dump{Failure: Failure{Op: "allgather", Culprit: 2}, State: State{Rank: 5, Events: []Record{{What: "begun"}}}}
	path, err := d.Write(want)
	if err != nil || filepath.Base(path) != fmt.Sprintf("allcast-cafe-rank5-pid%d-1.json", os.Getpid()) {
		t.Fatalf("%s: %v", path, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Dump
	if err := json.Unmarshal(text, &got); err != nil || got.Failure != want.Failure || got.Rank != 5 ||
		len(got.Events) != 1 {
		t.Errorf("read back %+v: %v", got, err)
	}
	for range 3 * maxDumps {
		if _, err := d.Write(want); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(files(t, dir)); n != maxDumps {
		t.Errorf("%d dump files, want %d", n, maxDumps)
	}
}

// The limit on files per directory includes files of other processes.
func TestDumpFullDirectory(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDumpFiles {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("allcast-%d.json", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewDumper(dir, "cafe", 0)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := d.Write(&Dump{}); path != "" || err != nil || len(files(t, dir)) != maxDumpFiles {
		t.Errorf("full directory: wrote %q, error %v", path, err)
	}
}

func TestDumpBadDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := NewDumper(dir, "", 0); err == nil {
			t.Errorf("%s is accepted as a directory for dumps", dir)
		}
	}
	var none *Dumper
	if path, err := none.Write(&Dump{}); path != "" || err != nil {
		t.Errorf("nil Dumper: wrote %q, error %v", path, err)
	}
}

// A dump that cannot be renamed to its final name leaves no temporary file behind.
func TestDumpLeavesNoPart(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(filepath.Join(dir, "x"), []byte("text")); err == nil {
		t.Error("writeWhole replaced a directory with a file")
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v, want x only", got)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) > 0 && strings.HasPrefix(names[0], ".allcast-") {
		t.Errorf("temporary file left behind: %s", names[0])
	}
	return names
}
