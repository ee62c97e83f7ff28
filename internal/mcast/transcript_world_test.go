package mcast

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/cockroachdb/datadriven"
)

// worldScript is all ranks of a collective in lockstep. Commands:
//
//	new       as for one Collective, without rank
//	schedule  the active group of each step
//	start     all ranks
//	messages  everything on the reliable path is delivered, one hop
//	multicast everything handed to the fabric leaves, arrives and is told; lose=(RANK:PSN,..)
//	reads     the reads under way end
//	wait      until the next timer of any rank
//	state
type worldScript struct {
	ops      []*Collective
	now      step.Time
	messages []hop
	handed   []hop
	reads    []hop
}

type hop struct {
	from int
	a    step.Action
}

func runWorldScript(t *testing.T, path string) {
	t.Helper()
	var s worldScript
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if out := s.command(args{t, d}); len(out) > 0 {
			return strings.Join(out, "\n")
		}
		return "nothing"
	})
}

func (s *worldScript) command(a args) (out []string) {
	switch a.d.Cmd {
	case "new":
		g, cfg := a.op()
		*s = worldScript{}
		for r := range g.Size() {
			cfg.Geometry, cfg.Rank, cfg.Est = g, r, a.estimator()
			cfg.Pool = NewPool(cfg.Pool.size, nil)
			s.ops = append(s.ops, New(cfg))
		}
		for r := range g.Size() {
			psn, n := g.Block(0, r)
			out = append(out, fmt.Sprintf("rank %d sends %s", r, psns(psn, n)))
		}
	case "schedule":
		g := s.ops[0].g
		for step := range g.Steps() {
			out = append(out, fmt.Sprintf("step %d: %v", step, g.ActiveGroup(step)))
		}
	case "start":
		for r, o := range s.ops {
			out = append(out, s.do(r, o.Step(s.now, step.Event{Kind: step.EvStart}, nil))...)
		}
	case "messages":
		return s.deliver()
	case "multicast":
		return s.multicast(a)
	case "reads":
		now := s.reads
		s.reads = nil
		for _, h := range now {
			o := s.ops[h.from]
			out = append(out, s.do(h.from, o.readDone(s.now, h.a.Sub, o.claim(&h.a)))...)
		}
	case "wait":
		at := step.Never
		for _, o := range s.ops {
			at = min(at, o.Timer())
		}
		if at == step.Never {
			return nil
		}
		s.now = max(s.now, at)
		out = append(out, "t="+showTime(s.now))
		for r, o := range s.ops {
			if o.Timer() <= s.now {
				out = append(out, s.do(r, o.Step(s.now, step.Event{Kind: step.EvTimer}, nil))...)
			}
		}
	case "state":
		for r, o := range s.ops {
			out = append(out, fmt.Sprintf("rank %d: %v, missing %s", r, o.Phase(), o.Missing(nil)))
		}
	default:
		a.d.Fatalf(a.t, "unknown command %s", a.d.Cmd)
	}
	return out
}

// do queues a rank's actions and describes them.
func (s *worldScript) do(rank int, acts []step.Action) (out []string) {
	o := s.ops[rank]
	for _, a := range acts {
		switch a.Kind {
		case step.ActSend:
			s.messages = append(s.messages, hop{rank, a})
		case step.ActMulticast:
			s.handed = append(s.handed, hop{rank, a})
		case step.ActRead:
			s.reads = append(s.reads, hop{rank, a})
		}
		out = append(out, fmt.Sprintf("rank %d: %s", rank, showAction(o.g, o.cfg.Flow, &a)))
	}
	return out
}

func (s *worldScript) deliver() (out []string) {
	now := s.messages
	s.messages = nil
	for _, h := range now {
		out = append(out, s.do(h.a.To, s.ops[h.a.To].Step(s.now, step.Event{Kind: step.EvMsg, From: h.from, Msg: &h.a.Msg}, nil))...)
	}
	return out
}

func (s *worldScript) multicast(a args) (out []string) {
	lost := map[string]bool{}
	if arg, ok := a.d.Arg("lose"); ok {
		for _, v := range arg.Vals {
			lost[v] = true
		}
	}
	now := s.handed
	s.handed = nil
	for _, h := range now {
		for psn := h.a.PSN; psn < h.a.PSN+h.a.N; psn++ {
			_, _, length := s.ops[h.from].g.Locate(h.a.Sub, psn)
			for r, o := range s.ops {
				if r == h.from || lost[fmt.Sprintf("%d:%d", r, psn)] {
					continue
				}
				_, _, acts := o.Chunk(s.now, h.a.Sub, psn, length, nil)
				out = append(out, s.do(r, acts)...)
			}
		}
		out = append(out, s.do(h.from, s.ops[h.from].Step(s.now, step.Event{Kind: step.EvSent, N: h.a.N}, nil))...)
	}
	return out
}
