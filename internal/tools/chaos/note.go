//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A note is what a rank tells the runner: a line of JSON.
type note struct {
	What  string `json:"what"`
	Epoch int    `json:"epoch"` // so many Shrinks have succeeded
	Call  uint64 `json:"call"`
	Op    string `json:"op,omitempty"`
	Comm  string `json:"comm,omitempty"`  // the communicator of the call
	Ranks []int  `json:"ranks,omitempty"` // world ranks: those that are named, or the members
	Text  string `json:"text,omitempty"`
	tally
}

// What a note says.
const (
	sayJoined    = "joined"
	sayLost      = "lost"      // a call failed: Ranks are to blame
	sayGivenUp   = "given up"  // Ranks have aborted a communicator of ours
	sayCancelled = "cancelled" // the context of a call has ended here; Ranks are to blame for the abort
	sayEpoch     = "epoch"     // we go on with Ranks
	sayMissing   = "missing"   // Shrink failed: Ranks did not come
	sayExcluded  = "excluded"  // the others went on without us
	sayWrong     = "wrong"     // wrong data
	sayOdd       = "odd"       // an error that should not be
	sayHang      = "hang"      // a call does not end
	sayTick      = "tick"      // how far we are
	sayEnd       = "end"       // left in good order
)

// tally is what a rank has done and has.
type tally struct {
	Calls      uint64 `json:"calls,omitempty"`
	Bytes      uint64 `json:"bytes,omitempty"`
	Repaired   uint64 `json:"repaired,omitempty"`
	Comms      uint64 `json:"comms,omitempty"`
	Cancelled  uint64 `json:"cancelled,omitempty"` // calls whose context ended before they did
	InTime     uint64 `json:"in_time,omitempty"`   // calls that completed before their context ended
	Unstarted  uint64 `json:"unstarted,omitempty"` // calls whose context had ended before
	Goroutines int    `json:"goroutines,omitempty"`
	Files      int    `json:"files,omitempty"`
}

func (n *note) String() string {
	s := fmt.Sprintf("%s, epoch %d, call %d", n.What, n.Epoch, n.Call)
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

var saying sync.Mutex

// say tells the runner.
func say(n note) {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has plain fields only
	}
	saying.Lock()
	defer saying.Unlock()
	_, _ = os.Stdout.Write(append(b, '\n')) // the runner is gone
}
