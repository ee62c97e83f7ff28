package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

var msgKinds = []MsgKind{
	MsgBarrier, MsgActivate, MsgChainSent, MsgSentUp, MsgAllSent, MsgFetch, MsgAvail, MsgFinal, MsgGrantUp,
	MsgGrant, MsgMark, MsgReady, MsgFinalSum, MsgEagerFetch, MsgEagerSent, MsgIncGo, MsgIncAsk, MsgIncDown,
	MsgFinishedUp, MsgFinished, MsgFinishedAsk,
	MsgHeartbeat, MsgDead, MsgAbort, MsgProbeWait, MsgWaitState, MsgAgree,
	MsgOffer, MsgAccept, MsgDiscard, MsgWithdraw, MsgWithdrawn, MsgCredit,
}

// drawMsg draws a message of a kind with the fields that this kind encodes.
func drawMsg(t *rapid.T, kind MsgKind) Msg {
	u8, u32, u64 := rapid.Uint8(), rapid.Uint32(), rapid.Uint64()
	m := Msg{Kind: kind, Comm: u32.Draw(t, "comm"), Seq: u64.Draw(t, "seq")}
	switch kind {
	case MsgBarrier:
		m.Round = u8.Draw(t, "round")
		fallthrough
	case MsgReady:
		m.Grant = u64.Draw(t, "grant")
		m.Digest = u64.Draw(t, "digest")
		m.Call = drawCall(t)
	case MsgFetch, MsgAvail:
		m.Stream, m.Ranges = rapid.Uint16().Draw(t, "stream"), drawRanges(t)
	case MsgEagerFetch:
		m.Digest, m.Call, m.Ranges = u64.Draw(t, "digest"), drawCall(t), drawRanges(t)
	case MsgEagerSent:
		m.Flag, m.Ranges = rapid.Bool().Draw(t, "flag"), drawRanges(t)
	case MsgGrantUp, MsgGrant, MsgFinished, MsgIncGo:
		m.Grant = u64.Draw(t, "grant")
	case MsgFinishedUp:
		m.Grant, m.Digest = u64.Draw(t, "grant"), u64.Draw(t, "digest")
	case MsgFinishedAsk:
		m.Grant, m.Digest, m.Call = u64.Draw(t, "grant"), u64.Draw(t, "digest"), drawCall(t)
	case MsgMark:
		m.Rank, m.Flag = u32.Draw(t, "rank"), rapid.Bool().Draw(t, "flag")
		for range rapid.SampledFrom([]int{0, 1, 2, 7, MaxSubgroups}).Draw(t, "counts") {
			m.Counts = append(m.Counts, u32.Draw(t, "count"))
		}
	case MsgFinalSum:
		m.Digest = u64.Draw(t, "digest")
	case MsgIncAsk:
		m.Rank, m.Round, m.Ranges = u32.Draw(t, "rank"), u8.Draw(t, "try"), drawRanges(t)
	case MsgDead, MsgIncDown:
		m.Rank = u32.Draw(t, "rank")
	case MsgAbort:
		m.Rank, m.Phase, m.Reason = u32.Draw(t, "rank"), u8.Draw(t, "phase"), u8.Draw(t, "reason")
		if rapid.Bool().Draw(t, "both calls") {
			m.Pair = &CallPair{
				Ranks: [2]uint32{u32.Draw(t, "rank"), u32.Draw(t, "rank")},
				Calls: [2]Call{drawCall(t), drawCall(t)},
			}
		}
	case MsgWaitState:
		m.Rank, m.State = u32.Draw(t, "rank"), u8.Draw(t, "state")
	case MsgAgree:
		m.Agree = drawAgree(t)
	case MsgOffer:
		m.Tag, m.Flag = u64.Draw(t, "tag"), rapid.Bool().Draw(t, "flag")
		fallthrough
	case MsgCredit:
		m.Bytes = u64.Draw(t, "bytes")
	}
	return m
}

func drawRanges(t *rapid.T) (ranges []Range) {
	u32 := rapid.Uint32()
	for range rapid.SampledFrom([]int{0, 1, 2, 7, MaxRanges}).Draw(t, "ranges") {
		ranges = append(ranges, Range{u32.Draw(t, "PSN"), u32.Draw(t, "N")})
	}
	return ranges
}

func drawCall(t *rapid.T) Call {
	u8, u32, u64 := rapid.Uint8(), rapid.Uint32(), rapid.Uint64()
	return Call{
		CallKind(u8.Draw(t, "kind")), Algorithm(u8.Draw(t, "algorithm")), rapid.Uint16().Draw(t, "type"),
		u32.Draw(t, "root"), u64.Draw(t, "bytes"),
	}
}

func drawAgree(t *rapid.T) *Agree {
	u64 := rapid.Uint64()
	words := func() (w []uint64) {
		for range rapid.SampledFrom([]int{0, 1, 2, maxWords}).Draw(t, "words") {
			w = append(w, u64.Draw(t, "word"))
		}
		return w
	}
	a := &Agree{
		Step: AgreeStep(rapid.Uint8Range(uint8(AgreeAsk), uint8(AgreeGone)).Draw(t, "step")), Ballot: u64.Draw(t, "ballot"),
		Called: rapid.Bool().Draw(t, "called"), Hurry: rapid.Bool().Draw(t, "hurry"), Dead: words(),
	}
	if a.Step == AgreePropose || a.Step == AgreeCommit || rapid.Bool().Draw(t, "value") {
		a.Value = &AgreeValue{
			Ballot: u64.Draw(t, "ballot"), Why: rapid.Uint8().Draw(t, "why"),
			ID: rapid.Uint32().Draw(t, "id"), Ranks: words(),
		}
	}
	return a
}

func TestMsgRoundTrip(t *testing.T) {
	for _, kind := range msgKinds {
		rapid.Check(t, func(t *rapid.T) {
			m := drawMsg(t, kind)
			prefix := []byte("before")
			b := AppendMsg(prefix, &m)
			if !bytes.HasPrefix(b, prefix) {
				t.Fatalf("AppendMsg changed or dropped the bytes before the message")
			}
			b = b[len(prefix):]
			if len(b) > MaxMsg {
				t.Fatalf("%d bytes, MaxMsg is %d", len(b), MaxMsg)
			}
			got, err := ParseMsg(b)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%+v was decoded as %+v, %v", m, got, err)
			}
			// Truncated and extended messages do not parse.
			cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
			if _, err := ParseMsg(b[:cut]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%d of %d bytes: %v", cut, len(b), err)
			}
			if _, err := ParseMsg(append(b, 0)); !errors.Is(err, ErrMalformed) {
				t.Fatalf("one byte too many: %v", err)
			}
		})
	}
}

// The numbers of the kinds are part of the wire format and must not change.
func TestMsgKindsAreFixed(t *testing.T) {
	numbers := []MsgKind{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
		48, 49, 50, 32, 33, 34, 35, 36, 37, 64, 65, 66, 67, 68, 69,
	}
	for i, want := range numbers {
		if msgKinds[i] != want {
			t.Errorf("kind %d is %d, want %d", i, msgKinds[i], want)
		}
	}
}

func TestParseMsgRefuses(t *testing.T) {
	header := func(kind MsgKind, rest ...byte) []byte {
		return append(AppendMsg(nil, &Msg{Kind: kind, Agree: &Agree{}})[:msgHeader], rest...)
	}
	for name, b := range map[string][]byte{
		"nothing":                      nil,
		"kind 0":                       header(0),
		"a kind between the first two": header(MsgHeartbeat - 1),
		"a kind between the last two":  header(MsgAgree + 1),
		"a kind beyond":                header(MsgCredit + 1),
		"an offer of neither kind":     header(MsgOffer, append(make([]byte, 16), 2)...),
		"a flag that is neither":       header(MsgMark, 0, 0, 0, 0, 2, 0, 0),
		"more ranges than are there":   header(MsgFetch, 0, 0, 1, 0, 1, 2, 3),
		"more ranges than allowed":     append(header(MsgAvail, 0, 0, 1, 2), make([]byte, 8*(MaxRanges+1))...),
		"an agreement without a step":  header(MsgAgree, make([]byte, 14)...),
		"a commit of nothing":          header(MsgAgree, append([]byte{byte(AgreeCommit)}, make([]byte, 13)...)...),
		"more ranks than allowed": header(MsgAgree,
			append([]byte{byte(AgreeAsk), 10: 0, 11: 1, 12: 1}, make([]byte, 8*(maxWords+2))...)...),
		"more counts than allowed": append(header(MsgMark, 0, 0, 0, 0, 0, 1, 4), make([]byte, 4*(MaxSubgroups+1))...),
	} {
		if m, err := ParseMsg(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A parsed message has its own copies of lists, because the receive buffer is reused.
func TestParsedMsgDoesNotAlias(t *testing.T) {
	m := Msg{Kind: MsgFetch, Ranges: []Range{{1, 2}, {3, 4}}}
	b := AppendMsg(nil, &m)
	got, err := ParseMsg(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = 0xff
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("the message changed with the receive buffer: %+v", got)
	}
}

func FuzzParseMsg(f *testing.F) {
	for _, kind := range msgKinds {
		m := Msg{Kind: kind, Comm: 7, Seq: 1 << 40, Round: 3, Grant: 99, Digest: 0xdeadbeef, Rank: 5, Flag: true, Stream: 2}
		m.Tag, m.Bytes = 1<<63|5, 1<<33
		m.Call = Call{Kind: Allgather, Algo: 1, Bytes: 1 << 30}
		m.Pair = &CallPair{Ranks: [2]uint32{1, 2}, Calls: [2]Call{m.Call, {Kind: Broadcast, Root: 3}}}
		m.Agree = &Agree{
			Step: AgreeCommit, Ballot: 1 << 32, Called: true, Dead: []uint64{4},
			Value: &AgreeValue{ID: 9, Ranks: []uint64{3}},
		}
		m.Ranges, m.Counts = []Range{{0, 1}, {1 << 31, 64}}, []uint32{0, 5, 1 << 31}
		b := AppendMsg(nil, &m)
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(append(b, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMsg(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || !reflect.DeepEqual(m, Msg{}) {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		if again := AppendMsg(nil, &m); !bytes.Equal(again, b) {
			t.Fatalf("%x parses as %+v, which is encoded as %x", b, m, again)
		}
		if len(m.Ranges) > MaxRanges || len(m.Counts) > MaxSubgroups || len(b) > MaxMsg {
			t.Fatalf("%d ranges, %d counts, %d bytes", len(m.Ranges), len(m.Counts), len(b))
		}
	})
}
