//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A send that fails puts its queue pair in an error state: later requests are flushed, and the queue
// pair neither sends nor receives any more. It is brought back in three steps.
//
//  1. fail turns the queue pair to ERR, so that the device flushes all its requests on any
//     provider. Until step 3, Send returns ErrBusy for it. Other queue pairs go on.
//  2. The flushed requests complete, and their batches count as completed. The lost datagrams are
//     missing at other ranks, which fetch them.
//  3. The queue pair goes through RESET, INIT and RTR to RTS. RESET makes some providers forget
//     completions of the queue pair that were not polled, with the slots of the staging ring that
//     they hold. So the receive worker does this step, when its completion queue is empty. If
//     no worker receives, Await does it after drainBound.
//
// If step 3 fails, or if no batch in between succeeded for maxInRow failures, the queue pair is
// broken: Send returns the error every time.
const (
	drainBound = time.Second
	maxInRow   = 5
)

// fail begins to bring a queue pair back. s.mu is held.
func (s *sender) fail(q *udQP, err error) {
	if q.err != nil || q.broken != nil {
		return // it is the consequence of the first error
	}
	q.err, q.since = err, time.Now()
	q.inRow++
	s.counters.failures++
	s.failing = append(s.failing, q)
	if q.inRow > maxInRow {
		s.breakDown(q, fmt.Errorf("verbs: %d sends in a row failed: %w", q.inRow, err))
		return
	}
	s.log(q).Warn("a multicast failed: the queue pair is reset, and lost chunks will be fetched", "err", err)
	if rc := setError(q.qp); rc != 0 {
		s.breakDown(q, fmt.Errorf("%w, after: %w", s.refused("turn to ERR", q, rc), err))
		return
	}
	s.receiver.mendSoon()
}

// mend brings queue pairs back whose requests have all completed. The receive worker calls it, when
// it has taken all that they received.
func (s *sender) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap(false)
	s.restoreIf(func(q *udQP) bool { return q.flying == 0 })
}

// restoreIf restores the failing queue pairs that are ready for it. s.mu is held.
func (s *sender) restoreIf(ready func(*udQP) bool) {
	for _, q := range slices.Clone(s.failing) {
		if ready(q) {
			s.restore(q)
		}
	}
}

// restore makes a queue pair usable again, or breaks it down. s.mu is held.
func (s *sender) restore(q *udQP) {
	if s.fatal != nil {
		return
	}
	if rc := C.ac_ud_reset(q.qp, C.int(s.dev.port), q.group.at.qkey); rc != 0 {
		s.breakDown(q, fmt.Errorf("%w, after: %w", s.refused("bring the queue pair back", q, int(rc)), q.err))
		return
	}
	s.counters.recoveries++
	s.log(q).Info("a queue pair for multicast works again")
	s.endAll(q)
	q.err = nil
	s.mended(q)
	s.drain(false) // completions from before the reset must not fill the queue
}

// breakDown gives a queue pair up. s.mu is held.
func (s *sender) breakDown(q *udQP, err error) {
	q.broken = fmt.Errorf("multicast to %v is not possible any more: %w", q.group.addr, err)
	s.log(q).Error("a queue pair for multicast is broken for good: the group's chunks will be fetched", "err", err)
	setError(q.qp) // where that fails, the queue pair is in RESET, or the device is gone
	q.err = nil
	s.endAll(q)
	s.mended(q)
}

func (s *sender) mended(q *udQP) {
	s.failing = slices.DeleteFunc(s.failing, func(f *udQP) bool { return f == q })
}

// lose is giveUp for an asynchronous event.
func (s *sender) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveUp(err)
}

// giveUp ends all sending: the completion queue or the device failed. s.mu is held.
func (s *sender) giveUp(err error) {
	if s.fatal != nil {
		return
	}
	s.fatal = fmt.Errorf("multicast is not possible any more: %w", err)
	s.dev.log.Error("multicast of a subgroup failed for good: chunks will be fetched", "device", s.dev.String(),
		"err", err)
	for b := range s.inFlight {
		setError(b.q.qp) // if that fails, the device does nothing
	}
	s.failing = nil
	s.endAll(nil)
}

// log is where failures of a queue pair are reported.
func (s *sender) log(q *udQP) *slog.Logger {
	return s.dev.log.With("device", s.dev.String(), "qp", fmt.Sprintf("%#x", q.num), "group", q.group.addr)
}

// refused is the error of a call for a queue pair that returned -errno.
func (s *sender) refused(op string, q *udQP, rc int) *Error {
	return s.dev.failed(op, rc).on(q.num, -1)
}
