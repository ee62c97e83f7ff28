//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A report is a message of a rank to the runner: one line of JSON.
type report struct {
	Kind  string `json:"kind"`
	Epoch int    `json:"epoch"` // number of successful Shrinks
	Call  uint64 `json:"call"`
	Op    string `json:"op,omitempty"`
	Comm  string `json:"comm,omitempty"`  // communicator of the call
	Ranks []int  `json:"ranks,omitempty"` // world ranks: the blamed ranks, or the members
	Text  string `json:"text,omitempty"`
	tally
}

// Kinds of reports about one communicator, after which a rank continues without it.
const (
	kindNoComm        = "no communicator"        // it failed because of Ranks
	kindCommCancelled = "communicator cancelled" // the context of a call on it ended here
	kindClosed        = "closed early"           // this rank has closed it, although others may use it
)

// Kinds of reports.
const (
	kindJoined     = "joined"
	kindLost       = "lost"      // a call failed because of Ranks
	kindGivenUp    = "given up"  // Ranks have aborted a communicator of this rank
	kindCancelled  = "cancelled" // the context of a call ended here; Ranks are to blame for the abort
	kindEpoch      = "epoch"     // this rank continues with Ranks
	kindMissing    = "missing"   // Shrink failed because Ranks did not call it
	kindExcluded   = "excluded"  // the others continued without this rank
	kindWrong      = "wrong"     // wrong data
	kindUnexpected = "odd"       // an unexpected error
	kindHang       = "hang"      // a call does not end
	kindProgress   = "tick"      // progress of this rank
	kindEnd        = "end"       // this rank left in good order
)

// tally holds the counters and the resources of a rank.
type tally struct {
	Calls     uint64 `json:"calls,omitempty"` // calls that succeeded
	Bytes     uint64 `json:"bytes,omitempty"`
	Repaired  uint64 `json:"repaired,omitempty"`
	Sums      uint64 `json:"sums,omitempty"` // chunks that aggregators summed
	Comms     uint64 `json:"comms,omitempty"`
	Cancelled uint64 `json:"cancelled,omitempty"` // calls whose context ended first
	InTime    uint64 `json:"in_time,omitempty"`   // calls that completed before their context ended
	Unstarted uint64 `json:"unstarted,omitempty"` // calls whose context had ended before
	Withdrawn uint64 `json:"withdrawn,omitempty"` // calls that could be repeated after their context had ended
	usage
}

// usage is the resources of a process.
type usage struct {
	Goroutines int `json:"goroutines,omitempty"`
	Files      int `json:"files,omitempty"`
}

// add adds the counters of another rank.
func (t *tally) add(o *tally) {
	t.Calls += o.Calls
	t.Bytes += o.Bytes
	t.Repaired += o.Repaired
	t.Sums += o.Sums
	t.Comms += o.Comms
	t.Cancelled += o.Cancelled
	t.InTime += o.InTime
	t.Unstarted += o.Unstarted
	t.Withdrawn += o.Withdrawn
}

// grow raises the maxima u to those of o.
func (u *usage) grow(o usage) {
	u.Goroutines, u.Files = max(u.Goroutines, o.Goroutines), max(u.Files, o.Files)
}

func (n *report) String() string {
	s := fmt.Sprintf("%s, epoch %d, call %d", n.Kind, n.Epoch, n.Call)
	if n.Op != "" {
		s += " (" + n.Op + ")"
	}
	if n.Ranks != nil {
		s += fmt.Sprintf(", ranks %v", n.Ranks)
	}
	if n.Text != "" {
		s += ": " + n.Text
	}
	return s
}

var reportMu sync.Mutex

// sendReport sends a report to the runner.
func sendReport(n report) {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // cannot happen: all fields are plain
	}
	reportMu.Lock()
	defer reportMu.Unlock()
	_, _ = os.Stdout.Write(append(b, '\n')) // fails only if the runner has exited
}
