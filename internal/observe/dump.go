package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Bounds on what failures leave behind: the first ones are those that matter, and a
// disk that fills up would be a failure of its own.
const (
	maxDumps     = 8    // of one process
	maxDumpFiles = 1024 // in the directory
)

// A Dumper writes what the recorder holds to files when operations fail.
type Dumper struct {
	Dir  string
	Job  string
	Rank int
	n    atomic.Int32
}

// A Dump is a file of a Dumper: how the process was, and why it was written.
type Dump struct {
	Failure Failure `json:"failure"`
	State
}

// A Failure is how an operation ended.
type Failure struct {
	Op      string `json:"op"`
	Algo    string `json:"algo"`
	Comm    uint32 `json:"comm"`
	Seq     uint64 `json:"seq"`
	Phase   string `json:"phase"`
	Culprit int    `json:"culprit"` // -1: no single rank
	Reason  string `json:"reason"`
	Missing string `json:"missing"`
}

// NewDumper prepares a directory. A nil Dumper, of an empty name, writes nothing.
func NewDumper(dir, job string, rank int) (*Dumper, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // a Dumper that writes nothing
	}
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	return &Dumper{Dir: dir, Job: job, Rank: rank}, nil
}

// CheckDir makes a directory for dumps, if it is not there.
func CheckDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// Write writes a dump and returns its file; "" if there are enough of them.
func (d *Dumper) Write(dump *Dump) (string, error) {
	if d == nil {
		return "", nil
	}
	n := d.n.Add(1)
	if n > maxDumps {
		return "", nil
	}
	there, err := filepath.Glob(filepath.Join(d.Dir, "allcast-*.json"))
	if err != nil || len(there) >= maxDumpFiles {
		return "", err
	}
	text, err := json.MarshalIndent(dump, "", " ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(d.Dir, fmt.Sprintf("allcast-%s-rank%d-pid%d-%d.json", d.Job, d.Rank, os.Getpid(), n))
	return path, writeWhole(path, append(text, '\n'))
}

// writeWhole writes a file that is there with all of its content, or not at all.
func writeWhole(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".allcast-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
