package session

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

var errBroken = errors.New("broken")

// model checks the promises of Links while events come in any order.
type model struct {
	t         *testing.T
	seed      uint64
	l         Links
	in, out   bool // open connections
	dropped   bool
	lost      []error
	vanished  bool
	bounded   bool // a timer runs that makes the peer vanish
	goodbyeIn int
}

func (m *model) do(n Next) {
	m.t.Helper()
	if n.Leave || n.Grace {
		m.bounded = true
	}
	if n.GoodbyeIn {
		if m.goodbyeIn++; !m.in || m.out {
			m.t.Fatalf("seed %d: a goodbye on in: in %v, out %v", m.seed, m.in, m.out)
		}
	}
	if n.Vanish {
		if m.vanished {
			m.t.Fatalf("seed %d: it vanishes twice", m.seed)
		}
		m.vanished = true
	}
	if n.Lost != nil {
		if m.lost = append(m.lost, n.Lost); m.dropped || len(m.lost) > 1 || m.in {
			m.t.Fatalf("seed %d: lost %v, dropped %v, in %v", m.seed, m.lost, m.dropped, m.in)
		}
	}
	if m.vanished != (m.l.State() == Gone) {
		m.t.Fatalf("seed %d: state %d, vanished %v", m.seed, m.l.State(), m.vanished)
	}
}

func (m *model) step(rng *rand.Rand) {
	was := m.l.State()
	switch rng.IntN(8) {
	case 0:
		if m.l.Dial() {
			m.out = true
		}
	case 1:
		switch m.l.Admit() {
		case Admitted:
			if m.in || was != Open {
				m.t.Fatalf("seed %d: admitted in state %d, in %v", m.seed, was, m.in)
			}
			m.in = true
		case Duplicate:
			if !m.in {
				m.t.Fatalf("seed %d: refused as a duplicate", m.seed)
			}
		case Left:
			if was == Open && !m.l.dead {
				m.t.Fatalf("seed %d: refused although the peer is open", m.seed)
			}
		}
	case 2:
		if m.in {
			m.in = false
			err := errBroken
			if rng.IntN(2) == 0 {
				err = fabric.ErrGoodbye
			}
			m.do(m.l.InEnded(err))
		}
	case 3:
		if m.out {
			m.out = false
			m.do(m.l.OutEnded(errBroken))
			m.do(m.l.OutEnded(errBroken)) // the writer and the watcher both tell
		}
	case 4:
		if m.out && rng.IntN(2) == 0 {
			m.do(m.l.OutGoodbye())
		}
	case 5:
		if rng.IntN(4) == 0 {
			m.dropped = m.dropped || len(m.lost) == 0
			m.do(m.l.Drop())
		}
	case 6:
		if m.bounded && rng.IntN(4) == 0 {
			m.do(m.l.Vanish())
		}
	case 7:
		if m.l.SayGoodbye() && (was != Leaving || m.l.SayGoodbye()) {
			m.t.Fatalf("seed %d: a goodbye in state %d", m.seed, was)
		}
	}
	if m.l.State() < was {
		m.t.Fatalf("seed %d: state %d after %d", m.seed, m.l.State(), was)
	}
	if m.l.State() == Leaving && !m.bounded {
		m.t.Fatalf("seed %d: it leaves without a bound", m.seed)
	}
}

// In any order of events, a peer is reported as lost at most once, never after Drop, and never while
// a reader may still bring something. Once both connections have ended, it is gone.
func TestLinksAtRandom(t *testing.T) {
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := &model{t: t, seed: seed}
		for range 5 + rng.IntN(30) {
			m.step(rng)
		}
		used := m.in || m.out
		if m.in {
			m.in = false
			m.do(m.l.InEnded(errBroken))
		}
		if m.out {
			m.out = false
			m.do(m.l.OutEnded(errBroken))
		}
		if used && (m.l.State() != Gone || !m.dropped && len(m.lost) == 0) {
			t.Fatalf("seed %d: both connections ended: state %d, dropped %v, lost %v", seed, m.l.State(), m.dropped, m.lost)
		}
	}
}

// What a peer said on its way out decides how its loss is reported.
func TestLinksReport(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(l *Links) []Next
		want error
	}{
		"goodbye": {func(l *Links) []Next {
			l.Admit()
			return []Next{l.InEnded(fabric.ErrGoodbye)}
		}, fabric.ErrGoodbye},
		"goodbye on our connection, then its end": {func(l *Links) []Next {
			l.Dial()
			return []Next{l.OutGoodbye(), l.OutEnded(errBroken)}
		}, fabric.ErrGoodbye},
		"our connection broke, and then the peer said goodbye": {func(l *Links) []Next {
			l.Dial()
			l.Admit()
			return []Next{l.OutEnded(errBroken), l.InEnded(fabric.ErrGoodbye)}
		}, fabric.ErrGoodbye},
		"the first error counts": {func(l *Links) []Next {
			l.Dial()
			l.Admit()
			return []Next{l.OutEnded(errBroken), l.InEnded(errors.New("reset"))}
		}, errBroken},
		"a violation, reported after its consequence": {func(l *Links) []Next {
			l.Dial()
			l.Admit()
			return []Next{l.OutEnded(fabric.ErrGoodbye), l.InEnded(ErrMalformed)}
		}, ErrMalformed},
		"never connected": {func(l *Links) []Next {
			l.Dial()
			return []Next{l.OutEnded(errBroken)}
		}, errBroken},
	} {
		var l Links
		var got error
		for _, n := range c.run(&l) {
			if n.Lost != nil {
				got = n.Lost
			}
		}
		if !errors.Is(got, c.want) {
			t.Errorf("%s: reported %v, want %v", name, got, c.want)
		}
	}
}

// Peer with one connection: the same promises, in any order of events.
func TestPeerAtRandom(t *testing.T) {
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var p Peer
		reports, dropped, vanished := 0, false, 0
		count := func(report, vanish bool) {
			if report {
				if reports++; dropped {
					t.Fatalf("seed %d: reported after Drop", seed)
				}
			}
			if vanish {
				vanished++
			}
		}
		for range 20 {
			was := p.State()
			switch rng.IntN(5) {
			case 0:
				if p.Drop() != (was == Open) {
					t.Fatalf("seed %d: Drop in state %d", seed, was)
				}
				dropped = true
			case 1:
				report, leave := p.Goodbye()
				if count(report, false); leave != (was == Open) || !p.HeardGoodbye() {
					t.Fatalf("seed %d: Goodbye in state %d", seed, was)
				}
			case 2:
				if rng.IntN(4) == 0 {
					count(p.Fail())
				}
			case 3:
				drained, idle := rng.IntN(3) == 0, rng.IntN(3) == 0
				vanish := p.Settle(drained, idle)
				if count(false, vanish); vanish && (was != Leaving || !drained && !idle) {
					t.Fatalf("seed %d: settled in state %d", seed, was)
				}
			case 4:
				if was == Leaving && rng.IntN(4) == 0 {
					count(false, p.Vanish())
				}
			}
			if p.State() < was || reports > 1 || vanished > 1 || (vanished == 1) != (p.State() == Gone) {
				t.Fatalf("seed %d: state %d after %d, %d reports, vanished %d times", seed, p.State(), was, reports, vanished)
			}
		}
	}
}

// Two ranks that exchange frames at random never send into a slot that is not posted, never stop for
// good, and survive the wrap-around of the counters.
func TestCreditAtRandom(t *testing.T) {
	const reserve = 2
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		slots := [2]int{8 + rng.IntN(25), 8 + rng.IntN(25)}
		var c [2]CreditAccount
		c[0].Open(slots[0], slots[1])
		c[1].Open(slots[1], slots[0])
		for i := range c { // near the wrap-around
			c[i].posted += 1<<32 - 50
			c[i].told += 1<<32 - 50
			c[i].granted += 1<<32 - 50
			c[i].sent += 1<<32 - 50
		}
		posted := slots
		var wire [2][]uint32 // to a rank
		var repost [2]int
		sent := 0
		for range 5000 {
			i := rng.IntN(2)
			switch rng.IntN(3) {
			case 0:
				if c[i].Room(reserve) {
					wire[1-i] = append(wire[1-i], c[i].Send())
					sent++
				}
			case 1:
				if len(wire[i]) > 0 {
					if posted[i]--; posted[i] < 0 {
						t.Fatalf("seed %d: a frame without a slot", seed)
					}
					c[i].Received(wire[i][0])
					wire[i] = wire[i][1:]
					repost[i]++
				}
			case 2:
				c[i].Posted(repost[i])
				posted[i] += repost[i]
				repost[i] = 0
				if c[i].Untold() >= slots[i]/2 && c[i].Room(0) {
					wire[1-i] = append(wire[1-i], c[i].Send()) // a Credit frame
				}
			}
			for r := range wire {
				if len(wire[r]) > posted[r] {
					t.Fatalf("seed %d: %d frames for %d slots", seed, len(wire[r]), posted[r])
				}
			}
		}
		if sent < 500 {
			t.Errorf("seed %d: only %d frames in 5000 steps", seed, sent)
		}
	}
}
