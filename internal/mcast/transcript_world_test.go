package mcast

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
)

// worldScript is all ranks of a collective in lockstep. Commands:
//
//	new       as for one Collective, without rank
//	schedule  the active group of each step
//	start     all ranks
//	messages  every message in flight arrives
//	multicast all chunks handed to the fabric leave and arrive; lose=(RANK:PSN,..)
//	reads     the reads in progress end
//	wait      until the next timer of any rank
//	state
type worldScript struct {
	*cluster
	lost map[string]bool // RANK:PSN
	out  []string
}

func (s *worldScript) run(d clustertest.Command) string {
	s.out = nil
	switch d.Cmd {
	case "new":
		s.open(d)
	case "schedule":
		for step := range stepsOf(s.g) {
			s.printf("step %d: %v", step, activeGroup(s.g, step))
		}
	case "start":
		s.w.Round("start")
	case "messages":
		s.w.Round("message")
	case "multicast":
		clear(s.lost)
		if arg, ok := d.Arg("lose"); ok {
			for _, v := range arg.Vals {
				s.lost[v] = true
			}
		}
		s.w.Round("multicast")
	case "reads":
		s.w.Round("claim")
		s.w.Round("read")
	case "wait":
		if s.w.FireNext(step.Never) {
			s.out = append([]string{"t=" + clustertest.ShowTime(s.w.Now)}, s.out...)
		}
	case "state":
		for r, m := range s.ranks {
			s.printf("rank %d: %v, missing %s", r, m.op.Phase(), m.op.Missing(nil))
		}
	default:
		return d.Unknown()
	}
	if len(s.out) == 0 {
		return "nothing"
	}
	return strings.Join(s.out, "\n")
}

func (s *worldScript) printf(format string, args ...any) {
	s.out = append(s.out, fmt.Sprintf(format, args...))
}

func (s *worldScript) open(d clustertest.Command) {
	shape, cfg, limits, room := scriptConfig(d)
	w := newWorld(d.T, 1, len(shape.Counts), limits, room)
	w.Now, w.lockstep = 0, true
	s.lost = map[string]bool{}
	s.cluster = w.open(shape, network{drop: func(to, _ int, psn uint32) bool {
		return s.lost[fmt.Sprintf("%d:%d", to, psn)]
	}}, cfg)
	s.log = func(rank int, a *step.Action) {
		s.printf("rank %d: %s", rank, showAction(s.g, cfg.Flow, a))
	}
	for r := range s.ranks {
		psn, n := s.g.Block(0, r)
		s.printf("rank %d sends %s", r, psns(psn, n))
	}
}
