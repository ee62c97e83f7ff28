package background

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const rate = 100e9 // bit/s

// meanShare returns the share of the time that a flow sends, over many bursts.
func meanShare(f *Flow, bursts int) float64 {
	var sending, silent float64
	for range bursts {
		pause, bytes := f.Next(rate)
		silent += pause.Seconds()
		sending += float64(bytes) * 8 / rate
	}
	return sending / (sending + silent)
}

func TestMeanRateIsTheShare(t *testing.T) {
	for _, share := range []float64{0.01, 0.25, 0.5, 0.95} {
		f := Spec{Flows: 1, Share: share, Seed: 3}.Sources(2)[0]
		if got := meanShare(f, 100_000); math.Abs(got-share) > 0.02*share {
			t.Errorf("a flow with share %v sends %v of the time", share, got)
		}
	}
}

func TestPausesAreLimited(t *testing.T) {
	f := Spec{Flows: 1, Share: 1e-300}.Sources(2)[0]
	for range 10 {
		if pause, bytes := f.Next(1); pause < 0 || pause > longestPause || bytes < 1 {
			t.Errorf("a pause of %v, then %d bytes", pause, bytes)
		}
	}
}

// A collective that is shorter than a pause meets the traffic as well.
func TestFlowsStartInTheMiddle(t *testing.T) {
	const share = 0.25
	sends := 0
	flows := Spec{Flows: maxFlows, Share: share, Seed: 1}.Sources(8)
	for _, f := range flows {
		if pause, _ := f.Next(rate); pause == 0 {
			sends++
		}
		if pause, _ := f.Next(rate); pause == 0 {
			t.Error("the second pause is 0")
		}
	}
	if got := float64(sends) / maxFlows; math.Abs(got-share) > 0.03 {
		t.Errorf("%v of the flows send at the start, want %v", got, share)
	}
}

func TestSameSeedSameBursts(t *testing.T) {
	type next struct {
		from, to int
		pause    time.Duration
		bytes    int64
	}
	list := func(seed uint64) (all []next) {
		for _, f := range (Spec{Flows: 8, Share: 0.3, Seed: seed}).Sources(4) {
			for range 100 {
				pause, bytes := f.Next(rate)
				all = append(all, next{f.From, f.To, pause, bytes})
			}
		}
		return all
	}
	one, again, other := list(1), list(1), list(2)
	same := 0
	for i := range one {
		if one[i] != again[i] {
			t.Fatalf("burst %d differs: %v and %v", i, one[i], again[i])
		}
		if one[i] == other[i] {
			same++
		}
	}
	if same > 0 {
		t.Errorf("seeds 1 and 2 have %d bursts in common", same)
	}
}

func TestFlowsJoinDifferentLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaves := rapid.IntRange(0, 40).Draw(t, "leaves")
		flows := Spec{Flows: rapid.IntRange(0, 50).Draw(t, "flows"), Share: 0.5}.Sources(leaves)
		if leaves < 2 && len(flows) > 0 {
			t.Fatalf("%d flows between %d leaves", len(flows), leaves)
		}
		for _, f := range flows {
			if f.From == f.To || min(f.From, f.To) < 0 || max(f.From, f.To) >= leaves {
				t.Fatalf("a flow from leaf %d to leaf %d of %d", f.From, f.To, leaves)
			}
		}
	})
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"":               {},
		"16:25%":         {Flows: 16, Share: 0.25, Seed: 1},
		"1:0.95:0":       {Flows: 1, Share: 0.95},
		"4096:0.5%:1844": {Flows: 4096, Share: 0.005, Seed: 1844},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"16", "16:", ":25%", "x:25%", "0:25%", "-1:25%", "4097:25%", "16:0", "16:96%", "16:-1%", "16:x", "16:NaN", "16:25%:",
		"16:25%:-1", "16:25%:1:1", "16:25%:99999999999999999999", " ",
	} {
		if s, err := Parse(text); err == nil || s != (Spec{}) || !strings.Contains(err.Error(), Form) {
			t.Errorf("Parse(%q) = %+v, %v; want an error with the form", text, s, err)
		}
	}
}

// The text of what parses parses to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "16:25%", "16:0.25:7", "1:95%:0", "4096:0.001%:18446744073709551615", "1:1e-300"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Fatalf("%q is %+v, whose text %q is %+v, %v", text, s, s.String(), again, err)
		}
	})
}
