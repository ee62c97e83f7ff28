package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  Error
		want string
	}{
		{
			Error{
				Comm: 7, Seq: 3, Op: wire.Allgather, Phase: step.Multicast, Culprit: 5, Reason: Lost, Missing: "rank 5 chunks 0-3",
			},
			"allgather 3 on communicator 7 failed in the multicast phase: lost: rank 5; missing: rank 5 chunks 0-3",
		},
		{
			Error{Op: wire.Broadcast, Phase: step.Queued, Culprit: 0, Reason: Aborted, Missing: "everything"},
			"broadcast 0 on communicator 0 failed in the queued phase: aborted: rank 0; missing: everything",
		},
		{
			Error{Op: wire.Broadcast, Phase: step.Handshake, Culprit: NoRank, Reason: Deadline, Missing: "nothing"},
			"broadcast 0 on communicator 0 failed in the handshake phase: deadline: no single rank; missing: nothing",
		},
		{
			Error{Op: wire.Allgather, Phase: step.Barrier, Culprit: 2, Reason: Mismatch, Missing: "rank 0 chunks 0-0"},
			"allgather 0 on communicator 0 failed in the barrier phase: mismatched calls: rank 2; missing: rank 0 chunks 0-0",
		},
		{
			Error{Op: wire.Allgather, Phase: step.Fetch, Culprit: 1, Reason: Protocol, Missing: "rank 0 chunks 0-0"},
			"allgather 0 on communicator 0 failed in the fetch phase: protocol violation: rank 1; missing: rank 0 chunks 0-0",
		},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	if got := Reason(77).String(); got != "reason(77)" {
		t.Errorf("an unknown reason is %q", got)
	}
}

// The error of a call tells its phase and the missing data.
func TestErrorNamesWhatIsMissing(t *testing.T) {
	c := world(t, 3, patient(testConfig()))
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 1 && d.psn != 1 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	j := c.call(0, broadcast(3, 2, 40, 4))
	c.RunFor(ms)
	c.abort(2, 0)
	c.finish()
	for r, want := range map[int]string{
		0: "handshake phase: aborted: rank 2; missing: nothing",
		1: "multicast phase: aborted: rank 2; missing: rank 2 chunks 0-0, rank 2 chunks 2-9",
	} {
		var e *Error
		if !errors.As(j.shares[r].err, &e) || !strings.Contains(e.Error(), want) {
			t.Errorf("rank %d: %v\nwant %s", r, e, want)
		}
	}
	if j.shares[2].err != nil {
		t.Errorf("rank 2 has all and its right neighbour too: %v", j.shares[2].err)
	}
}

// A call of several rounds has one number and one block of each rank. The error describes missing data in
// these terms, because the user never sees rounds.
func TestErrorNamesWhatIsMissingOfAllRounds(t *testing.T) {
	c := world(t, 2, psnBits(patient(testConfig()), 4))
	c.fate = func(_ int, d *datagram) clustertest.Fate {
		if d.seq == 1 && d.psn >= 3 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	j := c.call(0, broadcast(2, 0, 3*16, 1)) // rounds of 16 chunks: 0-15, 16-31, 32-47
	c.RunFor(ms)
	c.abort(0, 0)
	c.finish()
	got := j.shares[1].err.Missing
	if !strings.Contains(got, "rank 0 chunks 19-") || !strings.Contains(got, "47") && !strings.Contains(got, "round") {
		t.Errorf("chunks 0 to 18 of 48 are here; missing: %s\nwant chunks 19-47, or 19-31 and another round", got)
	}
}
