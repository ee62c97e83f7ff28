package observe

import (
	"errors"
	"strings"
	"testing"
)

// in returns the view of a process that waits for another rank in a barrier.
func in(rank, waits int, peers ...Peer) View {
	return View{Socket: Socket{Rank: rank}, State: &State{Rank: rank, Answers: true, Peers: peers, Comms: []Comm{{
		Name: "world", Calls: 8, Ops: []Op{{Op: "barrier", Seq: 7, Phase: "barrier", For: 4.2, WaitsOn: waits}},
	}}}}
}

// idle returns the view of a process that is outside any call, after the given number of calls.
func idle(rank int, calls uint64) View {
	s := &State{Rank: rank, Answers: true, Comms: []Comm{{Name: "world", Calls: calls}}}
	return View{Socket: Socket{Rank: rank}, State: s}
}

// mute returns the view of a process that does not answer.
func mute(rank int) View { return View{Socket: Socket{Rank: rank}, Err: errors.New("no answer")} }

// broken marks the communicator of a view as broken.
func broken(v View) View {
	v.State.Comms[0].Broken = "lost"
	return v
}

// stuck returns the view of a process whose control side does not answer.
func stuck(rank int) View {
	return View{Socket: Socket{Rank: rank}, State: &State{Rank: rank}}
}

// message returns the view of a process that waits for another rank in a Send or a Recv.
func message(op string, rank, waits int) View {
	v := in(rank, waits)
	v.State.Comms[0].Ops = []Op{{Op: op, Algo: "direct", Phase: "queued", For: 4.2, WaitsOn: waits}}
	return v
}

func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		name  string
		views []View
		rank  int
		want  []string
	}{
		{
			"one rank is stopped",
			[]View{in(0, 5, Peer{5, true, 9, false}), in(1, 0), in(2, 1, Peer{5, true, 3.2, false}), mute(5)},
			5,
			[]string{
				"all others wait for rank 5", "in barrier 7 of world for 4.2s", "does not answer",
				"silent for 3.2s",
			},
		},
		{
			"one rank has not called",
			[]View{in(0, 1), idle(1, 7), in(2, 1)},
			1,
			[]string{"all others wait for rank 1", "has not made this call"},
		},
		{"one rank is ahead", []View{in(0, 1), idle(1, 8)}, 1, []string{"rank 0 waits for rank 1", "moving"}},
		{
			"one rank works",
			[]View{in(0, 2), in(1, 2), in(2, 2)},
			2,
			[]string{"all others wait for rank 2", "at work in the barrier phase"},
		},
		{"a rank on another machine", []View{in(0, 9), in(1, 0)}, 9, []string{"not a process that we can ask here"}},
		{"a stuck control side", []View{in(0, 1), stuck(1)}, 1, []string{"control side is stuck"}},
		{
			"a message that nobody sends",
			[]View{message("recv", 0, 1), idle(1, 8)},
			1,
			[]string{"rank 0 waits for rank 1; in recv of world for 4.2s; it has no send for this message under way"},
		},
		{"a message that nobody receives", []View{message("send", 0, 1), idle(1, 8)}, 1, []string{"it has no recv"}},
		{
			"a sender in a barrier",
			[]View{message("recv", 0, 1), in(1, 2), idle(2, 7)},
			2,
			[]string{"has not made this call"},
		},
		{
			"ranks that receive from each other",
			[]View{message("recv", 0, 1), message("recv", 1, 0)},
			0,
			[]string{"wait for each other"},
		},
		{
			"a message of any rank",
			[]View{message("recv", 0, 0), idle(1, 8)},
			0,
			[]string{"waits for a message from any rank"},
		},
		{"a cycle", []View{in(0, 1), in(1, 0)}, 0, []string{"wait for each other"}},
		{
			"more ranks than are listed",
			[]View{in(0, 9), in(1, 9), in(2, 9), in(3, 9), in(4, 9), idle(5, 8)},
			9,
			[]string{"ranks 0, 1, 2, 3 and 1 more wait for"},
		},
		{"a single rank", []View{in(0, 0)}, 0, []string{"rank 0 waits for no other rank"}},
		{"no operation", []View{idle(0, 3), idle(1, 3)}, -1, []string{"no operation is under way"}},
		{
			"no operation, one rank stopped",
			[]View{idle(0, 3), mute(1)},
			-1,
			[]string{"no operation is under way", "no answer from rank 1"},
		},
		{"no answers", []View{mute(0), mute(1)}, -1, []string{"nobody answers"}},
		{"a broken communicator", []View{broken(idle(0, 3))}, -1, []string{"communicator world is broken: lost"}},
	} {
		d := Diagnose("cafe", c.views)
		for _, want := range c.want {
			if d.Rank != c.rank || d.Job != "cafe" || !strings.Contains(d.Text, want) {
				t.Errorf("%s: rank %d: %q; want rank %d and %q", c.name, d.Rank, d.Text, c.rank, want)
			}
		}
	}
}

func TestShort(t *testing.T) {
	for s, want := range map[float64]string{12e-6: "12us", 0.0123: "12.3ms", 3.21: "3.2s"} {
		if got := Short(s); got != want {
			t.Errorf("Short(%v) is %s, want %s", s, got, want)
		}
	}
}
