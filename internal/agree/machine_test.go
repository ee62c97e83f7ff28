package agree

import (
	"reflect"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// newMachine returns one of four ranks. Its user has called, and the ranks below leader are dead.
func newMachine(rank, leader int) *Machine {
	m := New(Config{Rank: rank, Size: 4})
	for r := range leader {
		m.Dead(r)
	}
	m.Call(0, uint32(100+rank))
	m.Sends()
	return m
}

// hear delivers a message and returns the answers.
func hear(m *Machine, from int, a wire.Agree) []Send {
	m.Message(0, from, &a)
	return m.Sends()
}

// steps returns the kinds of messages and their receivers.
func steps(sends []Send) (all []wire.AgreeStep, to []int) {
	for _, s := range sends {
		all, to = append(all, s.Msg.Step), append(to, s.To)
	}
	return all, to
}

func ballot(leader, round uint64) uint64 { return leader<<32 | round }

// accepted returns a membership of two ranks that was accepted under a ballot.
func accepted(ballot uint64, id uint32) *wire.AgreeValue {
	return &wire.AgreeValue{Ballot: ballot, ID: id, Ranks: newSet(4, 2, 3)}
}

// A rank that has accepted a value accepts later ballots of its leader, and no earlier ones. It accepts
// nothing from ranks that do not lead.
func TestAcceptsNoOldBallot(t *testing.T) {
	propose := func(b uint64, id uint32) wire.Agree {
		return wire.Agree{Step: wire.AgreePropose, Ballot: b, Value: accepted(b, id)}
	}
	for _, c := range []struct {
		name   string
		from   int
		ballot uint64
		want   bool
	}{
		{"an older ballot of the leader", 1, ballot(1, 4), false},
		{"a ballot of the previous leader", 1, ballot(0, 9), false},
		{"the same ballot again", 1, ballot(1, 5), true},
		{"a newer ballot", 1, ballot(1, 6), true},
		{"a newer ballot of a rank that does not lead", 2, ballot(2, 0), false},
	} {
		m := newMachine(3, 1)
		if got, _ := steps(hear(m, 1, propose(ballot(1, 5), 7))); !slices.Equal(got, []wire.AgreeStep{wire.AgreeAccept}) {
			t.Fatalf("%s: the first proposal was answered with %v", c.name, got)
		}
		sends := hear(m, c.from, propose(c.ballot, 8))
		want, id := []Send(nil), uint32(7)
		if c.want {
			want, id = []Send{{c.from, wire.Agree{Step: wire.AgreeAccept, Ballot: c.ballot}}}, 8
		}
		if !reflect.DeepEqual(sends, want) || m.value.ID != id {
			t.Errorf("%s: answered %+v, want %+v; the value is %d, want %d", c.name, sends, want, m.value.ID, id)
		}
	}
}

// A new leader proposes the accepted value with the highest ballot, in whatever order it hears of the
// values, also if that value is its own. It keeps the value and raises the ballot.
func TestNewLeaderProposesHighestBallot(t *testing.T) {
	for _, c := range []struct {
		ballots [4]uint64 // of the values that the ranks have accepted; 0 for none
		want    uint32    // rank whose value is proposed; 0 for none of them
	}{
		{[4]uint64{1: 0, 2: 5, 3: 7}, 3},
		{[4]uint64{1: 0, 2: 7, 3: 5}, 2},
		{[4]uint64{1: 6, 2: 5, 3: 7}, 3},
		{[4]uint64{1: 9, 2: 5, 3: 7}, 1},
		{[4]uint64{1: 9, 2: 0, 3: 0}, 1},
		{[4]uint64{1: 0, 2: 0, 3: 5}, 3},
		{[4]uint64{}, 0},
	} {
		for _, order := range [][]int{{2, 3}, {3, 2}} {
			m := newMachine(1, 0)
			if b := c.ballots[1]; b > 0 {
				hear(m, 0, wire.Agree{Step: wire.AgreePropose, Ballot: b, Value: accepted(b, 1)})
			}
			m.Dead(0)
			m.Sends()
			var sends []Send
			for _, r := range order {
				state := wire.Agree{Step: wire.AgreeState, Called: true, Dead: newSet(4, 0)}
				if b := c.ballots[r]; b > 0 {
					state.Value = accepted(b, uint32(r))
				}
				sends = append(sends, hear(m, r, state)...)
			}
			want := &wire.AgreeValue{Ballot: ballot(1, 0), ID: c.want, Ranks: newSet(4, 2, 3)}
			if c.want == 0 {
				want = &wire.AgreeValue{Ballot: ballot(1, 0), ID: 101, Ranks: newSet(4, 1, 2, 3)}
			}
			propose := wire.Agree{Step: wire.AgreePropose, Ballot: ballot(1, 0), Value: want}
			if !reflect.DeepEqual(sends, []Send{{2, propose}, {3, propose}}) {
				t.Errorf("ballots %v, order %v: sent %+v, want proposals of %+v", c.ballots, order, sends, want)
			}
		}
	}
}

// A new leader proposes nothing before it knows the state of every living rank: the rank that has not
// answered may have accepted a value that another rank has acted on. That holds with an accepted value in
// hand, and when the leader no longer waits for users.
func TestLeaderWaitsForAllStates(t *testing.T) {
	for _, c := range []struct {
		name  string
		hurry bool
		first *wire.AgreeValue // value of the rank that answers first
	}{
		{"no value", false, nil},
		{"no value, in a hurry", true, nil},
		{"a value", false, accepted(5, 7)},
		{"a value, in a hurry", true, accepted(5, 7)},
	} {
		m := newMachine(1, 1)
		if c.hurry {
			m.Hurry(0)
		}
		state := wire.Agree{Step: wire.AgreeState, Called: true, Dead: newSet(4, 0), Value: c.first}
		if sends := append(m.Sends(), hear(m, 2, state)...); len(sends) > 0 {
			t.Errorf("%s: sent %+v before rank 3 has answered", c.name, sends)
		}
		state.Value = accepted(6, 8)
		sends := hear(m, 3, state)
		if got, to := steps(sends); !slices.Equal(got, []wire.AgreeStep{wire.AgreePropose, wire.AgreePropose}) ||
			!slices.Equal(to, []int{2, 3}) || sends[0].Msg.Value.ID != 8 {
			t.Errorf("%s: sent %+v, want proposals of the value of rank 3", c.name, sends)
		}
		// Nor does it decide before all of them have accepted.
		accept := wire.Agree{Step: wire.AgreeAccept, Ballot: ballot(1, 0)}
		if hear(m, 3, accept); m.Outcome() != nil {
			t.Errorf("%s: decided before rank 2 has accepted", c.name)
		}
		if hear(m, 2, accept); m.Outcome() == nil || m.Outcome().ID != 8 {
			t.Errorf("%s: decided %+v, want the value of rank 3", c.name, m.Outcome())
		}
	}
}

// A rank that has decided tells the decision to every rank whose message shows that it has not. Other
// messages need no answer, and a rank that was declared lost answers none.
func TestStragglersAreReminded(t *testing.T) {
	value := accepted(5, 7)
	for _, c := range []struct {
		msg  wire.Agree
		want bool
	}{
		{wire.Agree{Step: wire.AgreeAsk, Ballot: ballot(1, 0)}, true},
		{wire.Agree{Step: wire.AgreeState, Called: true}, true},
		{wire.Agree{Step: wire.AgreePropose, Ballot: ballot(1, 0), Value: accepted(6, 8)}, true},
		{wire.Agree{Step: wire.AgreeAccept, Ballot: ballot(1, 0)}, false},
		{wire.Agree{Step: wire.AgreeCommit, Value: value}, false},
		{wire.Agree{Step: wire.AgreeGone}, false},
	} {
		m := newMachine(3, 0)
		if got, to := steps(hear(m, 0, wire.Agree{Step: wire.AgreeCommit, Value: value})); !slices.Equal(to, []int{1, 2}) {
			t.Fatalf("forwarded the decision as %v to %v", got, to)
		}
		var want []Send
		if c.want {
			want = []Send{{1, wire.Agree{Step: wire.AgreeCommit, Value: value}}}
		}
		if got := hear(m, 1, c.msg); !reflect.DeepEqual(got, want) {
			t.Errorf("step %d was answered with %+v, want %+v", c.msg.Step, got, want)
		}
		if m.Outcome() != value {
			t.Errorf("step %d changed the decision to %+v", c.msg.Step, m.Outcome())
		}
		lost := newMachine(3, 0)
		lost.Dead(3)
		if got := hear(lost, 1, c.msg); got != nil || lost.Outcome().Why != Excluded {
			t.Errorf("a rank that is lost answered step %d with %+v", c.msg.Step, got)
		}
	}
}
