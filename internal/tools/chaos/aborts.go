//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// aborts holds the ranks' reports about broken communicators in the modes cancel and leave. Reports of several ranks
// arrive in any order, so it judges them when all have arrived.
type aborts map[abortKey][]*report

// abortKey identifies a rank in an epoch, or a communicator that failed on it although it went on.
type abortKey struct {
	epoch, rank int
	comm        string
}

func (a aborts) add(rank int, n *report) {
	key := abortKey{epoch: n.Epoch, rank: rank}
	if n.Kind == kindNoComm || n.Kind == kindCommCancelled || n.Kind == kindClosed {
		key.comm = n.Comm
	}
	a[key] = append(a[key], n)
}

// judge finds a blamed rank that had not aborted or closed that communicator in that epoch. A rank aborts the
// communicator of a call whose context ends. In a Split this also breaks the communicators under
// construction, which other ranks may already use. Any rank whose call on the main communicator fails then
// aborts its other communicators. A rank that goes on without a communicator leaves all others intact. Any error may
// name a rank that left the job, which may have ended before it could report anything.
func (a aborts) judge(left func(rank, epoch int) bool) error {
	for key, list := range a {
		for _, n := range list {
			for _, rank := range n.Ranks {
				if !left(rank, key.epoch) && !a.didBreak(rank, key, n) {
					return fmt.Errorf("rank %d blames rank %d, which did not do that: %v", key.rank, rank, n)
				}
			}
		}
	}
	return nil
}

// didBreak reports whether a rank can have broken the communicator of a report.
func (a aborts) didBreak(rank int, key abortKey, n *report) bool {
	if key.comm != "" && slices.ContainsFunc(a[abortKey{key.epoch, rank, key.comm}], func(blamed *report) bool {
		return blamed.Kind == kindCommCancelled || blamed.Kind == kindClosed
	}) {
		return true
	}
	return slices.ContainsFunc(a[abortKey{epoch: key.epoch, rank: rank}], func(blamed *report) bool {
		if key.comm != "" { // the rank aborted all communicators
			return !strings.Contains(n.Text, ": given up: ") && !wasClosed(n)
		}
		return abortedFor(blamed, n)
	})
}

// abortedFor reports whether the rank of one report can have broken the communicator of another.
func abortedFor(blamed, n *report) bool {
	switch blamed.Kind {
	case kindCancelled:
		return !wasClosed(n) && (blamed.Comm == n.Comm || blamed.makes(n.Comm) || !wasCancelled(n))
	case kindGivenUp, kindLost:
		return blamed.Comm != n.Comm && !wasCancelled(n) && !wasClosed(n)
	}
	return false
}

// wasCancelled reports whether a call failed because a context ended, and not because a rank aborted the
// communicator for another reason.
func wasCancelled(n *report) bool { return strings.Contains(n.Text, ": cancelled: ") }

// wasClosed reports whether a call failed because a rank had closed the communicator.
func wasClosed(n *report) bool { return strings.Contains(n.Text, ": closed the communicator: ") }

// makes reports whether a report is about the Split that makes a communicator.
func (n *report) makes(comm string) bool {
	return strings.HasPrefix(n.Op, "split ") && strings.HasPrefix(comm, madeBy(n.Call))
}

// madeBy returns the prefix of the names of the communicators that a Split makes.
func madeBy(call uint64) string { return fmt.Sprintf("call %d, ", call) }
