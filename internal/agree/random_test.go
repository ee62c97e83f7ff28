package agree

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

var seeds = flag.Int("agree.seeds", 10_000, "random runs")

// world is ranks that agree, and what is between them: links that keep their order,
// a detector that is never wrong, and a clock. What happens next is drawn.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	seed   uint64
	now    step.Time
	ms     []*Machine
	links  [][][]wire.Agree // from, to
	dead   []bool           // or taken for dead
	wrong  []bool           // they live
	told   [][]bool         // by rank: whose death it knows
	called []bool
	early  []Set  // by rank: whom it knew to be dead when it called
	never  []bool // comes

	rumours bool // ranks that live are taken for dead
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), seed: seed}
	n := 1 + w.rng.IntN(8)
	w.dead, w.wrong, w.called, w.never, w.early = make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n), make([]Set, n)
	for r := range n {
		w.ms = append(w.ms, New(Config{Rank: r, Size: n, Patience: 100}))
		w.links = append(w.links, make([][]wire.Agree, n))
		w.told = append(w.told, make([]bool, n))
		w.early[r] = newSet(n)
	}
	return w
}

// take puts what a rank says on its links.
func (w *world) take(r int) {
	for _, s := range w.ms[r].Sends() {
		b := wire.AppendMsg(nil, &wire.Msg{Kind: wire.MsgAgree, Agree: &s.Msg})
		m, err := wire.ParseMsg(b)
		if err != nil {
			w.t.Fatalf("seed %d: rank %d sends what does not parse: %v", w.seed, r, err)
		}
		w.links[r][s.To] = append(w.links[r][s.To], *m.Agree)
	}
}

// crash kills a rank; of what it has sent, some first part arrives on each link.
func (w *world) crash(r int) {
	w.dead[r] = true
	for to := range w.links[r] {
		w.links[r][to] = w.links[r][to][:w.rng.IntN(len(w.links[r][to])+1)]
	}
}

// suspect takes a rank for dead that lives. In time all hear of it, itself too.
func (w *world) suspect(r int) { w.dead[r], w.wrong[r] = true, true }

// runs reports whether a rank does anything.
func (w *world) runs(r int) bool { return !w.dead[r] || w.wrong[r] }

func (w *world) tell(r, died int) {
	if !w.told[r][died] {
		w.told[r][died] = true
		w.ms[r].Dead(died)
		w.take(r)
	}
}

// call lets a user come. What it knows then must be heeded.
func (w *world) call(r int) {
	for d := range w.dead {
		if w.told[r][d] && w.dead[d] {
			w.early[r].add(d)
		}
	}
	w.called[r] = true
	w.ms[r].Call(w.now, uint32(100+r))
	w.take(r)
}

// deliver hands over one message.
func (w *world) deliver(from, to int) {
	a := w.links[from][to][0]
	w.links[from][to] = w.links[from][to][1:]
	if !w.runs(to) || w.told[to][from] {
		return // nobody listens to the dead
	}
	for _, d := range Set(a.Dead).Ranks() {
		if !w.dead[d] {
			w.t.Fatalf("seed %d: rank %d says that %d is dead, which lives", w.seed, from, d)
		}
		w.told[to][d] = true // the machine knows by the message
	}
	w.ms[to].Message(w.now, from, &a)
	w.take(to)
}

// choices are what can happen next.
func (w *world) choices() (all []func()) {
	for from := range w.ms {
		if w.runs(from) && !w.called[from] && !w.never[from] {
			all = append(all, func() { w.call(from) })
		}
		for to := range w.ms {
			if len(w.links[from][to]) > 0 {
				all = append(all, func() { w.deliver(from, to) })
			}
			if w.dead[to] && w.runs(from) && !w.told[from][to] {
				all = append(all, func() { w.tell(from, to) })
			}
		}
	}
	return all
}

func (w *world) run() {
	crashes := w.rng.IntN(len(w.ms))
	for r := range w.never {
		w.never[r] = w.rng.IntN(20) == 0
	}
	for step := 0; ; step++ {
		if crashes > 0 && w.rng.IntN(15) == 0 {
			crashes--
			if r := w.rng.IntN(len(w.ms)); w.living() > 1 && !w.dead[r] {
				if w.rumours && w.rng.IntN(2) == 0 {
					w.suspect(r)
				} else {
					w.crash(r)
				}
			}
		}
		if w.rng.IntN(300) == 0 {
			if r := w.rng.IntN(len(w.ms)); !w.dead[r] && w.called[r] {
				w.ms[r].Hurry(w.now)
				w.take(r)
			}
		}
		all := w.choices()
		if len(all) > 0 {
			all[w.rng.IntN(len(all))]()
			continue
		}
		if !w.tick() {
			return
		}
		if step > 100_000 {
			w.t.Fatalf("seed %d: it never ends", w.seed)
		}
	}
}

func (w *world) living() (n int) {
	for _, d := range w.dead {
		if !d {
			n++
		}
	}
	return n
}

// tick lets the earliest clock go off.
func (w *world) tick() bool {
	next := step.Never
	for r, m := range w.ms {
		if w.runs(r) {
			next = min(next, m.NextTimer())
		}
	}
	if next == step.Never {
		return false
	}
	w.now = next
	for r, m := range w.ms {
		if w.runs(r) {
			m.Timer(w.now)
			w.take(r)
		}
	}
	return true
}

// known reports whether a death was known to a rank when it called; with rumours, to
// one that the others surely listened to.
func (w *world) known(x int) bool {
	for r := range w.early {
		if w.early[r].Has(x) && (!w.rumours || !w.dead[r]) {
			return true
		}
	}
	return false
}

// check says what is wrong. What a rank decided before it died counts too: it may have
// acted on it.
func (w *world) check() string {
	var first *wire.AgreeValue
	anybody := false
	for r := range w.ms {
		anybody = anybody || !w.dead[r] && w.called[r]
	}
	for r, m := range w.ms {
		v := m.Outcome()
		if w.wrong[r] {
			if v == nil && w.called[r] {
				return fmt.Sprintf("rank %d was left out and does not know", r)
			}
			continue
		}
		switch {
		case v == nil && anybody && !w.dead[r]:
			return fmt.Sprintf("rank %d has no outcome", r)
		case v == nil:
			continue
		case first == nil:
			first = v
		case first.Why != v.Why || first.ID != v.ID || !reflect.DeepEqual(first.Ranks, v.Ranks):
			return fmt.Sprintf("rank %d: %+v, another one: %+v", r, v, first)
		}
		for _, x := range Set(v.Ranks).Ranks() {
			switch {
			case v.Why == Agreed && w.known(x):
				return fmt.Sprintf("rank %d was dead before, and is among the survivors", x)
			case v.Why == Agreed && !w.called[x]:
				return fmt.Sprintf("rank %d is among the survivors and never came", x)
			}
		}
		if v.Why == Agreed && !Set(v.Ranks).Has(r) && !w.dead[r] {
			return fmt.Sprintf("rank %d lives and is left out of %v", r, Set(v.Ranks).Ranks())
		}
	}
	return ""
}

// Ranks that live are taken for lost: they learn it, and the others agree all the same.
func TestRumours(t *testing.T) {
	t.Parallel()
	n := *seeds
	if testing.Short() {
		n /= 10
	}
	out, differs := 0, 0
	for seed := range uint64(n) {
		w := newWorld(t, seed)
		w.rumours = true
		w.run()
		// Those who really died count for less here: what they decided under a leader that
		// was given up need not be what the others did.
		for r := range w.ms {
			if w.dead[r] && !w.wrong[r] {
				w.ms[r].outcome = nil
			}
		}
		if bad := w.check(); bad != "" {
			t.Fatalf("seed %d, %d ranks, dead %v, wrongly %v, called %v: %s", seed, len(w.ms), w.dead, w.wrong, w.called, bad)
		}
		first := slices.IndexFunc(w.ms, func(m *Machine) bool { return !w.dead[m.cfg.Rank] && m.Outcome() != nil })
		for r, m := range w.ms {
			v := m.Outcome()
			if !w.wrong[r] || v == nil || first < 0 {
				continue
			}
			if v.Why == Excluded {
				out++
			} else if u := w.ms[first].Outcome(); v.Why == Agreed && u.Why == Agreed && v.ID != u.ID {
				differs++
			}
		}
	}
	t.Logf("%d runs: %d times a rank learned that it is out, %d times it had gone on without the others before", n, out, differs)
	if out == 0 {
		t.Error("nobody was left out")
	}
}

func TestRandom(t *testing.T) {
	t.Parallel()
	n := *seeds
	if testing.Short() {
		n /= 10
	}
	count := map[uint8]int{}
	withDead := 0
	for seed := range uint64(n) {
		w := newWorld(t, seed)
		w.run()
		if bad := w.check(); bad != "" {
			t.Fatalf("seed %d, %d ranks, dead %v, called %v: %s", seed, len(w.ms), w.dead, w.called, bad)
		}
		for r, m := range w.ms {
			if v := m.Outcome(); !w.dead[r] && v != nil {
				count[v.Why]++
				if m.outdated(v) {
					withDead++
				}
				break
			}
		}
	}
	t.Logf("%d runs: %d agreed (%d of them with one that died meanwhile), %d found somebody late", n, count[Agreed], withDead, count[Late])
	if count[Agreed] == 0 || count[Late] == 0 || withDead == 0 {
		t.Error("some outcome was never reached")
	}
}
