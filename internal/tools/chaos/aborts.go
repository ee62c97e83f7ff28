//go:build linux

package main

import (
	"fmt"
	"strings"
)

// aborts is what ranks said of communicators that were aborted, in mode cancel. Notes of several ranks
// come in any order, so it judges when all have come.
type aborts map[abortKey]*note // the first of each rank and epoch

// abortKey is a rank in an epoch.
type abortKey struct{ epoch, rank int }

// add takes a note.
func (a aborts) add(rank int, n *note) { a[abortKey{n.Epoch, rank}] = n }

// judge finds a rank that was blamed and had not aborted that communicator in that epoch. A rank aborts
// the communicator of a call whose context ends; in a Split, that breaks the communicators that it makes,
// which other ranks may use already. Any rank whose call fails then aborts its other communicators.
func (a aborts) judge() error {
	for key, n := range a {
		for _, whom := range n.Ranks {
			blamed := a[abortKey{key.epoch, whom}]
			switch {
			case blamed == nil:
			case blamed.What == sayCancelled && (blamed.Comm == n.Comm || blamed.makes(n.Comm) || !wasCancelled(n)):
				continue
			case blamed.What == sayGivenUp && blamed.Comm != n.Comm && !wasCancelled(n):
				continue
			}
			return fmt.Errorf("rank %d blames rank %d, which did not do that: %v", key.rank, whom, n)
		}
	}
	return nil
}

// wasCancelled reports whether a call failed because a context ended, and not because a rank aborted the
// communicator for another reason.
func wasCancelled(n *note) bool { return strings.Contains(n.Text, ": cancelled: ") }

// makes reports whether a note is about the Split that makes a communicator.
func (n *note) makes(comm string) bool {
	return strings.HasPrefix(n.Op, "split ") && strings.HasPrefix(comm, madeBy(n.Call))
}

// madeBy begins the names of the communicators that a Split makes.
func madeBy(call uint64) string { return fmt.Sprintf("call %d, ", call) }
