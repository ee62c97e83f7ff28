package allcast

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// A calibration interpolates linearly between its measurements and chooses the fastest algorithm.
func TestCalibrationBest(t *testing.T) {
	const size, reps = 3, 2
	list := trials(size)
	times := map[string][2]time.Duration{ // small, large
		"broadcast mcast": {900, 1000}, "broadcast binomial": {100, 2000},
		"allgather mcast": {500, 600}, "allgather recursive-doubling": {200, 900}, "allgather ring": {300, 5000},
	}
	all := make([]byte, 8*len(list)*reps*size)
	n := len(all) / size
	for r := range size {
		for i, tr := range list {
			took := times[tr.kind.String()+" "+tr.algo][i%2]
			// The slowest rank of the fastest repetition counts.
			if r > 0 {
				took /= 2
			}
			for rep := range reps {
				binary.LittleEndian.PutUint64(all[r*n+8*(i*reps+rep):], uint64(took)*uint64(1+7*rep))
			}
		}
	}
	c := newCalibration(list, all, size, reps)
	for _, x := range []struct {
		kind  wire.CallKind
		bytes int64
		want  string
	}{
		{wire.Broadcast, 0, "binomial"},
		{wire.Broadcast, 1 << 10, "binomial"},
		{wire.Broadcast, 16 << 10, "binomial"},
		{wire.Broadcast, 48 << 10, engine.Multicast},
		{wire.Broadcast, 1 << 30, engine.Multicast},
		{wire.Allgather, 1, "recursive-doubling"},
		{wire.Allgather, 60 << 10, engine.Multicast},
		{wire.Allreduce, 1, ""},
	} {
		if got := c.best(x.kind, x.bytes); got != x.want {
			t.Errorf("%v of %d bytes: %q, want %q", x.kind, x.bytes, got, x.want)
		}
	}
	if got := (*calibration)(nil).best(wire.Broadcast, 1); got != "" {
		t.Errorf("%q without measurements", got)
	}
}
