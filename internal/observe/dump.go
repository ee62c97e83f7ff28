package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Limits of the files that failures leave behind. The first failures matter most, and a full
// disk would cause failures of its own.
const (
	maxDumps     = 8    // per process
	maxDumpFiles = 1024 // in the directory
)

// A Dumper writes the recorder's events to files when operations fail.
type Dumper struct {
	Dir  string
	Job  string
	Rank int
	n    atomic.Int32
}

// A Dump is the contents of a Dumper's file: the state of the process and the failure.
type Dump struct {
	Failure Failure `json:"failure"`
	State
}

// A Failure describes how an operation failed.
type Failure struct {
	Op      string `json:"op"`
	Algo    string `json:"algo"`
	Comm    uint32 `json:"comm"`
	Seq     uint64 `json:"seq"`
	Phase   string `json:"phase"`
	Culprit int    `json:"culprit"` // -1 if it is not a single rank
	Reason  string `json:"reason"`
	Missing string `json:"missing"`
}

// NewDumper prepares a directory. With an empty name it returns nil; a nil Dumper writes nothing.
func NewDumper(dir, job string, rank int) (*Dumper, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // a Dumper that writes nothing
	}
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	return &Dumper{Dir: dir, Job: job, Rank: rank}, nil
}

// CheckDir creates the directory for dumps if it does not exist.
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

// Write writes a dump and returns its file, or "" if the limit is reached.
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

// writeWhole writes a file atomically.
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
