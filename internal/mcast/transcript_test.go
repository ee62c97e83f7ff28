package mcast

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Transcripts: testdata/op_*.txt holds the events and actions of one Collective, testdata/world_*.txt
// those of all ranks of a collective in lockstep. To write the answers anew, run go test -run
// Transcript -rewrite, and read the difference.
func TestTranscripts(t *testing.T) {
	clustertest.RunScripts(t, "testdata/op_*.txt", func() func(clustertest.Command) string { return new(opScript).run })
	clustertest.RunScripts(t, "testdata/world_*.txt",
		func() func(clustertest.Command) string { return new(worldScript).run })
}

// scriptConfig reads the arguments of the command new.
func scriptConfig(d clustertest.Command) (s Shape, cfg Config, limits Limits, room uint64) {
	p, bytes, chunk, subs := d.Int("p", 2), int64(d.Int("bytes", 8)), d.Int("chunk", 4), d.Int("s", 1)
	s = allgather(p, bytes, chunk, d.Int("m", 1), subs)
	if d.Text("kind", "allgather") == "broadcast" {
		s = broadcast(p, d.Int("root", 0), bytes, chunk, subs)
	}
	if arg, ok := d.Arg("sizes"); ok {
		for i := range s.Counts {
			arg.Scan(d.T, i, &s.Counts[i])
		}
	}
	cfg = Config{Comm: 1, Seq: 1, Batch: uint32(d.Int("batch", 16))}
	if d.HasArg("credit") {
		cfg.Flow = FlowCredit
	}
	alpha := d.Span("alpha", 10*step.Microsecond)
	limits = Limits{LinkRate: float64(d.Int("rate", 0)), Alpha: alpha, MinAlpha: alpha, MaxAlpha: step.Second}
	return s, cfg, limits, uint64(d.Int("room", 8))
}

func psns(psn, n uint32) string {
	if n == 1 {
		return fmt.Sprintf("PSN %d", psn)
	}
	return fmt.Sprintf("PSN %d-%d", psn, psn+n-1)
}

// inSub names a subgroup where there are several.
func inSub(g *Geometry, sub int) string {
	if g.Streams() == 1 {
		return ""
	}
	return fmt.Sprintf(" of subgroup %d", sub)
}

var msgNames = map[wire.MsgKind]string{
	wire.MsgBarrier: "Barrier", wire.MsgActivate: "Activate", wire.MsgChainSent: "ChainSent", wire.MsgSentUp: "SentUp",
	wire.MsgAllSent: "AllSent", wire.MsgFetch: "Fetch", wire.MsgAvail: "Avail", wire.MsgFinal: "Final",
	wire.MsgGrantUp: "GrantUp", wire.MsgGrant: "Grant", wire.MsgMark: "Mark",
}

func showMsg(g *Geometry, flow Flow, m *wire.Msg) string {
	s := msgNames[m.Kind]
	switch m.Kind {
	case wire.MsgBarrier:
		s += fmt.Sprintf(" round %d", m.Round)
		if flow == FlowCredit {
			s += fmt.Sprintf(", grant %d", m.Grant)
		}
	case wire.MsgFetch, wire.MsgAvail:
		var all []string
		for _, q := range m.Ranges {
			all = append(all, psns(q.PSN, q.N))
		}
		s += " " + strings.Join(all, ", ") + inSub(g, int(m.Stream))
	case wire.MsgGrantUp, wire.MsgGrant:
		s += fmt.Sprintf(" %d", m.Grant)
	case wire.MsgMark:
		s += fmt.Sprintf(" rank %d has sent %v", m.Rank, m.Counts)
		if m.Flag {
			s += ", and all before it"
		}
	}
	return s
}

func showAction(g *Geometry, flow Flow, a *step.Action) string {
	switch a.Kind {
	case step.ActSend:
		return fmt.Sprintf("to %d: %s", a.To, showMsg(g, flow, &a.Msg))
	case step.ActMulticast:
		return "multicast " + psns(a.PSN, a.N) + inSub(g, a.Stream)
	case step.ActRead:
		var parts []string
		for _, q := range a.Ranges {
			off, length := g.Span(a.Stream, q.PSN, q.N)
			parts = append(parts, fmt.Sprintf("%s: %d bytes at %d", psns(q.PSN, q.N), length, off))
		}
		return fmt.Sprintf("read%s from %d: %s", inSub(g, a.Stream), a.To, strings.Join(parts, ", "))
	case step.ActComplete:
		return "complete"
	case step.ActClosed:
		return "closed"
	case step.ActMismatch:
		call := &a.Msg.Call
		return fmt.Sprintf("mismatch: rank %d called %v of %d bytes in all, root %d", a.To, call.Kind, call.Bytes, call.Root)
	}
	return fmt.Sprintf("action %d", a.Kind)
}
