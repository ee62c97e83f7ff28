//go:build linux

package main

import (
	"fmt"
	"strings"
)

// aborts is what ranks said of communicators that were aborted, in mode cancel. Notes of several ranks
// come in any order, so it judges when all have come.
type aborts struct {
	cancelled map[abortKey]bool // ranks whose context has ended
	gaveUp    map[abortKey]bool // ranks that aborted communicators because another had
	blames    []blame
}

// abortKey is a rank in an epoch.
type abortKey struct{ epoch, rank int }

type blame struct {
	rank int
	note *note
}

// add takes a note.
func (a *aborts) add(rank int, n *note) {
	if a.cancelled == nil {
		a.cancelled, a.gaveUp = map[abortKey]bool{}, map[abortKey]bool{}
	}
	key := abortKey{n.Epoch, rank}
	if n.What == sayCancelled {
		a.cancelled[key] = true
	} else {
		a.gaveUp[key] = true
	}
	a.blames = append(a.blames, blame{rank, n})
}

// judge finds a rank that was blamed and had not given up in that epoch. A rank that is said to have
// cancelled a call had a context that ended.
func (a *aborts) judge() error {
	for _, b := range a.blames {
		for _, whom := range b.note.Ranks {
			key := abortKey{b.note.Epoch, whom}
			if a.cancelled[key] || a.gaveUp[key] && !strings.Contains(b.note.Text, ": cancelled: ") {
				continue
			}
			return fmt.Errorf("rank %d blames rank %d, which did not do that: %v", b.rank, whom, b.note)
		}
	}
	return nil
}
