package mcast

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
	"github.com/cockroachdb/datadriven"
)

// Transcripts: testdata/op_*.txt is one Collective and what it is told and answers;
// testdata/world_*.txt is all ranks of a collective in lockstep. To write the
// answers anew: go test -run Transcript -rewrite, and read the difference.
func TestTranscripts(t *testing.T) {
	for _, c := range []struct {
		prefix string
		run    func(*testing.T, string)
	}{{"op", runOpScript}, {"world", runWorldScript}} {
		files, err := filepath.Glob(filepath.Join("testdata", c.prefix+"_*.txt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s transcripts: %v", c.prefix, err)
		}
		for _, path := range files {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { c.run(t, path) })
		}
	}
}

// args reads a command's arguments, with defaults.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) integer(key string, otherwise int) int {
	v := otherwise
	a.d.MaybeScanArgs(a.t, key, &v)
	return v
}

func (a args) text(key, otherwise string) string {
	v := otherwise
	a.d.MaybeScanArgs(a.t, key, &v)
	return v
}

func (a args) span(key string, otherwise step.Time) step.Time {
	s := a.text(key, "")
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return step.Time(d)
}

// spans reads "3" or "3-5" or a list of such in parentheses.
func (a args) spans(key string) (rs []wire.Range) {
	arg, ok := a.d.Arg(key)
	if !ok {
		return nil
	}
	for _, v := range arg.Vals {
		var first, last uint32
		if n, err := fmt.Sscanf(v, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if err != nil {
			a.d.Fatalf(a.t, "%s: %q is no range", key, v)
		}
		rs = append(rs, wire.Range{PSN: first, N: last - first + 1})
	}
	return rs
}

// op makes a Collective's geometry and configuration from a command's arguments.
func (a args) op() (*Geometry, Config) {
	p := a.integer("p", 2)
	s := allgather(p, int64(a.integer("bytes", 8)), a.integer("chunk", 4), a.integer("m", 1), a.integer("s", 1))
	if a.text("kind", "allgather") == "broadcast" {
		s = broadcast(p, a.integer("root", 0), int64(a.integer("bytes", 8)), a.integer("chunk", 4), a.integer("s", 1))
	}
	if arg, ok := a.d.Arg("sizes"); ok {
		for i := range s.Counts {
			arg.Scan(a.t, i, &s.Counts[i])
		}
	}
	cfg := Config{Comm: 1, Seq: 1, Batch: uint32(a.integer("batch", 16)), Pool: NewPool(uint64(a.integer("room", 8)), nil)}
	if a.d.HasArg("credit") {
		cfg.Flow = FlowCredit
	}
	return oneRound(a.t, s), cfg
}

func (a args) estimator() *Estimator {
	alpha := a.span("alpha", 10*step.Microsecond)
	return NewEstimator(Limits{LinkRate: float64(a.integer("rate", 0)), Alpha: alpha, MinAlpha: alpha, MaxAlpha: step.Second})
}

func psns(psn, n uint32) string {
	if n == 1 {
		return fmt.Sprintf("PSN %d", psn)
	}
	return fmt.Sprintf("PSN %d-%d", psn, psn+n-1)
}

// inSub names a subgroup where there are several.
func inSub(g *Geometry, sub int) string {
	if g.Subgroups() == 1 {
		return ""
	}
	return fmt.Sprintf(" of subgroup %d", sub)
}

var msgNames = map[wire.MsgKind]string{
	wire.MsgBarrier: "Barrier", wire.MsgActivate: "Activate", wire.MsgChainSent: "ChainSent", wire.MsgSentUp: "SentUp", wire.MsgAllSent: "AllSent",
	wire.MsgFetch: "Fetch", wire.MsgAvail: "Avail", wire.MsgFinal: "Final", wire.MsgGrantUp: "GrantUp", wire.MsgGrant: "Grant", wire.MsgMark: "Mark",
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
		s += " " + strings.Join(all, ", ") + inSub(g, int(m.Sub))
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
		return "multicast " + psns(a.PSN, a.N) + inSub(g, a.Sub)
	case step.ActRead:
		var parts []string
		for _, q := range a.Ranges {
			off, length := g.Span(a.Sub, q.PSN, q.N)
			parts = append(parts, fmt.Sprintf("%s: %d bytes at %d", psns(q.PSN, q.N), length, off))
		}
		return fmt.Sprintf("read%s from %d: %s", inSub(g, a.Sub), a.To, strings.Join(parts, ", "))
	case step.ActComplete:
		return "complete"
	case step.ActClosed:
		return "closed"
	case step.ActMismatch:
		return fmt.Sprintf("mismatch: rank %d called %v of %d bytes in all, root %d", a.To, a.Msg.Call.Kind, a.Msg.Call.Bytes, a.Msg.Call.Root)
	}
	return fmt.Sprintf("action %d", a.Kind)
}

func showTime(t step.Time) string {
	if t == step.Never {
		return "never"
	}
	return time.Duration(t).String()
}
