//go:build linux

package main

import (
	"fmt"
	"strings"
)

// aborts holds the ranks' reports about aborted communicators in mode cancel. Reports of several ranks
// arrive in any order, so it judges them when all have arrived.
type aborts map[abortKey]*report // one report per rank and epoch

// abortKey identifies a rank in an epoch.
type abortKey struct{ epoch, rank int }

func (a aborts) add(rank int, n *report) { a[abortKey{n.Epoch, rank}] = n }

// judge finds a blamed rank that had not aborted that communicator in that epoch. A rank aborts the
// communicator of a call whose context ends. In a Split this also breaks the communicators under
// construction, which other ranks may already use. Any rank whose call fails then aborts its other
// communicators.
func (a aborts) judge() error {
	for key, n := range a {
		for _, rank := range n.Ranks {
			blamed := a[abortKey{key.epoch, rank}]
			switch {
			case blamed == nil:
			case blamed.Kind == kindCancelled && (blamed.Comm == n.Comm || blamed.makes(n.Comm) || !wasCancelled(n)):
				continue
			case blamed.Kind == kindGivenUp && blamed.Comm != n.Comm && !wasCancelled(n):
				continue
			}
			return fmt.Errorf("rank %d blames rank %d, which did not do that: %v", key.rank, rank, n)
		}
	}
	return nil
}

// wasCancelled reports whether a call failed because a context ended, and not because a rank aborted the
// communicator for another reason.
func wasCancelled(n *report) bool { return strings.Contains(n.Text, ": cancelled: ") }

// makes reports whether a report is about the Split that makes a communicator.
func (n *report) makes(comm string) bool {
	return strings.HasPrefix(n.Op, "split ") && strings.HasPrefix(comm, madeBy(n.Call))
}

// madeBy returns the prefix of the names of the communicators that a Split makes.
func madeBy(call uint64) string { return fmt.Sprintf("call %d, ", call) }
