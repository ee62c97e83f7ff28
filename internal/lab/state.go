package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is the contents of a lab's state file. It is written before the lab is built, so that any
// process can remove the lab.
type state struct {
	Config Config
	Owner  process // process that builds the lab
	Holder process // process that holds the multicast routes
	Logs   string  // directory of a running job's logs; removed if the job is killed

	Aggregator  []string  `json:",omitempty"` // command of an aggregator
	Aggregators []process `json:",omitempty"` // in the order of the plan's
}

// process identifies a process uniquely: the kernel reuses numbers, but not with the same start
// time.
type process struct {
	PID   int
	Start uint64 // in clock ticks since boot
}

// Files of a lab.
func statePath(name string) string { return "/run/allcast-lab-" + name + ".json" }
func lockPath(name string) string  { return "/run/allcast-lab-" + name + ".lock" }
func logPath(name string) string   { return "/run/allcast-lab-" + name + ".log" }
func keyPath(name string) string   { return "/run/allcast-lab-" + name + ".key" } // site key of aggregators

// backgroundPath returns the file with the number of bytes that background flows have sent.
func backgroundPath(name string) string { return "/run/allcast-lab-" + name + ".background" }

// logPath returns the log of an aggregator.
func (p *Plan) logPath(a Aggregator) string {
	return "/run/allcast-lab-" + p.Config.Name + "." + a.Switch.Name + ".log"
}

// ErrNone reports that there is no lab of that name.
var ErrNone = errors.New("no lab is up")

func readState(name string) (*state, error) {
	text, err := os.ReadFile(statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: bring one up with \"allcast lab up\"", ErrNone)
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", statePath(name), err)
	}
	return &s, nil
}

// readPlan returns the state of a lab and its plan.
func readPlan(name string) (*state, *Plan, error) {
	s, err := readState(name)
	if err != nil {
		return nil, nil, err
	}
	plan, err := NewPlan(s.Config)
	return s, plan, err
}

// write replaces the file atomically.
func (s *state) write() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := statePath(s.Config.Name)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func removeFiles(name string) error {
	var errs []error
	paths, err := filepath.Glob("/run/allcast-lab-" + name + ".*.log") // of aggregators
	if err != nil {
		return err
	}
	for _, path := range append(paths, statePath(name), statePath(name)+".new", logPath(name), keyPath(name),
		backgroundPath(name)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
