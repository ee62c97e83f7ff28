package mcast

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// opScript is one Collective and its driver. Commands:
//
//	new       p= rank= m= s= bytes= chunk= sizes=(..) kind= root= batch= rate= alpha= credit room=
//	start
//	msg       from= and the kind of message in lower case, with round= upto= ranges=(..) sub= rank= counts=(..) before
//	chunk     psn=N or N-M, sub= len=: datagrams
//	sent      n=: chunks that have left the send buffer
//	claim     psn= sub=: the receive worker claims chunks for a read
//	read      psn= sub=: a read has ended, of the chunks claimed before if there are any
//	wait      for=DURATION, or until the Collective's timer: time passes, the timer fires if due
//	state
type opScript struct {
	o       *Collective
	now     step.Time
	won     []wire.Range      // by the last claim
	ignored [Stale + 1]uint64 // datagrams that placed nothing, by verdict
}

func (s *opScript) run(d clustertest.Command) string {
	switch d.Cmd {
	case "new":
		shape, cfg, limits, room := scriptConfig(d)
		cfg.Geometry, cfg.Rank = oneRound(d.T, shape), d.Int("rank", 0)
		cfg.Est, cfg.Pool = NewEstimator(limits), NewPool(room, nil)
		*s = opScript{o: New(cfg)}
		return s.describe()
	case "start":
		return s.step(step.Event{Kind: step.EvStart})
	case "msg":
		return s.step(step.Event{Kind: step.EvMsg, From: d.Int("from", 0), Msg: s.message(d)})
	case "chunk":
		return s.chunks(d)
	case "sent":
		return s.step(step.Event{Kind: step.EvSent, N: uint32(d.Int("n", 1))})
	case "read":
		sub := d.Int("sub", 0)
		if s.won == nil {
			s.won = s.o.claim(&step.Action{Stream: sub, Ranges: d.Ranges("psn")})
		}
		won := s.won
		s.won = nil
		return s.show(s.o.readDone(s.now, sub, won))
	case "claim":
		s.won = s.o.claim(&step.Action{Stream: d.Int("sub", 0), Ranges: d.Ranges("psn")})
		var out []string
		for _, q := range s.won {
			out = append(out, "claimed "+psns(q.PSN, q.N))
		}
		return strings.Join(out, "\n")
	case "wait":
		if len(d.CmdArgs) > 0 {
			s.now += d.Span("for", 0)
		} else if at := s.o.Timer(); at != step.Never {
			s.now = max(s.now, at)
		}
		now := clustertest.ShowTime(s.now)
		if s.o.Timer() > s.now {
			return fmt.Sprintf("t=%s: nothing is due before %s", now, clustertest.ShowTime(s.o.Timer()))
		}
		return fmt.Sprintf("t=%s\n", now) + s.step(step.Event{Kind: step.EvTimer})
	case "state":
		return s.state()
	}
	return d.Unknown()
}

func (s *opScript) step(ev step.Event) string { return s.show(s.o.Step(s.now, ev, nil)) }

func (s *opScript) show(acts []step.Action) string {
	if len(acts) == 0 {
		return "nothing to do"
	}
	var lines []string
	for i := range acts {
		lines = append(lines, showAction(s.o.g, s.o.cfg.Flow, &acts[i]))
	}
	return strings.Join(lines, "\n")
}

func (s *opScript) message(d clustertest.Command) *wire.Msg {
	m := &wire.Msg{Comm: 1, Seq: 1, Digest: s.o.g.Digest(), Call: s.o.g.Call()}
	for kind, name := range msgNames {
		if d.HasArg(strings.ToLower(name)) {
			m.Kind = kind
		}
	}
	if m.Kind == 0 {
		d.Fatalf(d.T, "no such message")
	}
	m.Round, m.Grant = uint8(d.Int("round", 0)), uint64(d.Int("upto", 0))
	m.Stream, m.Rank, m.Flag = uint16(d.Int("sub", 0)), uint32(d.Int("rank", 0)), d.HasArg("before")
	m.Ranges = d.Ranges("ranges")
	if arg, ok := d.Arg("counts"); ok {
		m.Counts = make([]uint32, len(arg.Vals))
		for i := range m.Counts {
			arg.Scan(d.T, i, &m.Counts[i])
		}
	}
	if d.HasArg("other-call") {
		m.Digest, m.Call = 0, wire.Call{Kind: wire.Broadcast, Root: 2, Bytes: 12345}
	}
	return m
}

// chunks delivers datagrams and tells the verdict on each.
func (s *opScript) chunks(d clustertest.Command) string {
	var lines []string
	sub := d.Int("sub", 0)
	for _, q := range d.Ranges("psn") {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			length := 0
			if sub < s.o.g.Streams() && psn < s.o.g.PSNs(sub) {
				_, _, length = s.o.g.Locate(sub, psn)
			}
			off, v, acts := s.o.Chunk(s.now, sub, psn, d.Int("len", length), nil)
			line := fmt.Sprintf("PSN %d: %s", psn, []string{"placed", "duplicate", "late", "foreign", "stale"}[v])
			if v == Placed {
				line += fmt.Sprintf(" at %d", off)
			} else {
				s.ignored[v]++
			}
			if lines = append(lines, line); len(acts) > 0 {
				lines = append(lines, s.show(acts))
			}
		}
	}
	return strings.Join(lines, "\n")
}

func (s *opScript) describe() string {
	o, g := s.o, s.o.g
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d: left %d, right %d", o.rank, g.Size(), o.left, o.right)
	if pred, succ := g.neighbours(o.rank); pred >= 0 || succ >= 0 {
		fmt.Fprintf(&b, "; in its chain after %s, before %s", orNobody(pred), orNobody(succ))
	}
	for sub := range g.Streams() {
		own := "sends nothing"
		if psn, n := g.Block(sub, o.rank); n > 0 {
			own = "sends " + psns(psn, n)
		}
		fmt.Fprintf(&b, "\n%s%s of %d", own, inSub(g, sub), g.PSNs(sub))
	}
	return b.String()
}

func orNobody(rank int) string {
	if rank < 0 {
		return "nobody"
	}
	return fmt.Sprint(rank)
}

func (s *opScript) state() string {
	o := s.o
	show := clustertest.ShowTime
	line := fmt.Sprintf("t=%s %v: missing %s; alpha %s, timer %s, waits for %d",
		show(s.now), o.Phase(), o.Missing(nil), show(o.cfg.Est.Alpha()), show(o.Timer()), o.WaitingOn())
	if o.cr.on {
		line += fmt.Sprintf("\ngrants %d, all grant %d, consumed %d, lent %d",
			o.cr.own, o.cr.all, o.cr.consumed, o.cfg.Pool.Lent())
	}
	if st := o.Stats(); st != (step.Stats{}) || s.ignored != [Stale + 1]uint64{} {
		line += fmt.Sprintf("\nrepaired %d, late %d, duplicates %d, foreign %d",
			st.Repaired, st.Late+s.ignored[Late], s.ignored[Duplicate], s.ignored[Foreign])
	}
	return line
}
