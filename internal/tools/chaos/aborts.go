//go:build linux

package main

import (
	"fmt"
	"strings"
)

// aborts holds the ranks' reports about aborted communicators in mode cancel. Reports of several ranks
// arrive in any order, so it judges them when all have arrived. It has one report per key.
type aborts map[abortKey]*report

// abortKey identifies a rank in an epoch, or a Subset that failed on it.
type abortKey struct {
	epoch, rank int
	subset      string
}

func (a aborts) add(rank int, n *report) {
	key := abortKey{epoch: n.Epoch, rank: rank}
	if n.Kind == kindNoSubset || n.Kind == kindSubsetCancelled {
		key.subset = n.Comm
	}
	a[key] = n
}

// judge finds a blamed rank that had not aborted that communicator in that epoch. A rank aborts the
// communicator of a call whose context ends. In a Split this also breaks the communicators under
// construction, which other ranks may already use. Any rank whose call fails then aborts its other
// communicators. A Subset whose context ends fails on its members, and nothing else.
func (a aborts) judge() error {
	for key, n := range a {
		for _, rank := range n.Ranks {
			blamed := a[abortKey{epoch: key.epoch, rank: rank}]
			ok := blamed != nil && abortedFor(blamed, n)
			if key.subset != "" {
				inSubset := a[abortKey{key.epoch, rank, key.subset}]
				ok = inSubset != nil && inSubset.Kind == kindSubsetCancelled ||
					blamed != nil && !strings.Contains(n.Text, ": given up: ") // it aborted all communicators
			}
			if !ok {
				return fmt.Errorf("rank %d blames rank %d, which did not do that: %v", key.rank, rank, n)
			}
		}
	}
	return nil
}

// abortedFor reports whether the rank of one report can have broken the communicator of another.
func abortedFor(blamed, n *report) bool {
	switch blamed.Kind {
	case kindCancelled:
		return blamed.Comm == n.Comm || blamed.makes(n.Comm) || !wasCancelled(n)
	case kindGivenUp:
		return blamed.Comm != n.Comm && !wasCancelled(n)
	}
	return false
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
