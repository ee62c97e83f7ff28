package cli

import (
	"strings"
	"testing"
	"time"
)

// A line appears after a while, is replaced at most four times per second, and leaves nothing behind.
func TestProgressLine(t *testing.T) {
	var out strings.Builder
	start := time.Unix(1000, 0)
	p := &ProgressLine{out: &out, start: start, dueAt: start.Add(progressDelay)}
	p.Clear()
	at := func(after time.Duration, share float64, detail string) string {
		t.Helper()
		out.Reset()
		p.Update(start.Add(after), "allgather (mcast)", share, detail)
		return out.String()
	}
	if got := at(999*time.Millisecond, 0.25, "1.5ms simulated"); got != "" {
		t.Errorf("before the delay: %q", got)
	}
	want := clearLine + "allgather (mcast): 25 %, 1.5ms simulated, about 3s left"
	if got := at(time.Second, 0.25, "1.5ms simulated"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := at(1200*time.Millisecond, 0.25, "1.5ms simulated"); got != "" {
		t.Errorf("after 200 ms: %q", got)
	}
	want = clearLine + "allgather (mcast): 100 %, 6ms simulated"
	if got := at(2*time.Second, 1, "6ms simulated"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	if p.Clear(); out.String() != clearLine {
		t.Errorf("left %q on the terminal", out.String())
	}
}

func TestNoProgressLine(t *testing.T) {
	var p *ProgressLine
	p.Update(time.Now(), "x", 0, "y")
	p.Clear()
}
