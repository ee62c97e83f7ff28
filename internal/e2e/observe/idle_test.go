//go:build unix

package observe

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/e2e"
)

// idle is a role: it joins and does nothing until its input ends. Then it says how many microseconds of
// processor time it has used in between.
func idle() int {
	c, err := allcast.Join(context.Background(), allcast.Options{})
	if err != nil {
		e2e.Say("join:", err)
		return 1
	}
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	e2e.Say("idle")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	e2e.Say("spent", spent.Microseconds())
	_ = c.Close()
	return 0
}

// TestIdleCost reports the processor time of eight idle ranks.
func TestIdleCost(t *testing.T) {
	d := time.Second
	if s := os.Getenv("ALLCAST_TEST_IDLE"); s != "" {
		d, _ = time.ParseDuration(s)
	}
	all := e2e.Start(t, 8, "idle")
	for rank, p := range all {
		if !p.Until("idle") {
			t.Fatalf("rank %d: %s", rank, p.Last())
		}
	}
	<-time.After(d) // duration of the measurement
	var spent int
	for rank, p := range all {
		p.EndInput()
		var us int
		if !p.Until("spent") {
			t.Fatalf("rank %d: %s", rank, p.Last())
		}
		_, _ = fmt.Sscanf(p.Last(), "spent %d", &us)
		spent += us
	}
	t.Logf("8 idle ranks use %.2f %% of a processor, measured over %v",
		float64(spent)/float64(d.Microseconds())*100, d)
}
