// Package background describes the traffic of other jobs: flows between leaves, whose bursts follow from a seed. The
// simulator and the lab send the same flows. A flow enters the network at a leaf and leaves it at another one, so it
// loads only the links between switches.
package background

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// Spec is the value of --background. Its zero value means no traffic.
type Spec struct {
	Flows int     // number of flows, each from one leaf to another
	Share float64 // mean rate of a flow, as a share of a host link's rate
	Seed  uint64  // seed of ends and bursts
}

// Form is the syntax of a Spec.
const Form = "FLOWS:SHARE[:SEED], such as 16:25% or 16:25%:7"

const (
	maxFlows = 4096
	maxShare = 0.95 // a flow that never pauses has no bursts
)

// Parse parses a Spec. An empty text means no traffic.
func Parse(text string) (Spec, error) {
	if text == "" {
		return Spec{}, nil
	}
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("background traffic %q: %s; want %s", text, fmt.Sprintf(format, args...), Form)
	}
	fields := strings.Split(text, ":")
	if len(fields) < 2 || len(fields) > 3 {
		return bad("it has %d fields", len(fields))
	}
	s := Spec{Seed: 1}
	var err error
	if s.Flows, err = strconv.Atoi(fields[0]); err != nil || s.Flows < 1 || s.Flows > maxFlows {
		return bad("the number of flows is not 1 to %d", maxFlows)
	}
	share, err := units.ParseProbability(fields[1])
	if err != nil || share <= 0 || share > maxShare {
		return bad("the share is not above 0%% and up to %.0f%%", 100*maxShare)
	}
	s.Share = float64(share)
	if len(fields) == 3 {
		if s.Seed, err = strconv.ParseUint(fields[2], 10, 64); err != nil {
			return bad("the seed is no whole number")
		}
	}
	return s, nil
}

// String returns the text of a Spec.
func (s Spec) String() string {
	if s.Flows == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%v:%d", s.Flows, units.Probability(s.Share), s.Seed)
}

// longestPause keeps times in range for small shares of slow links.
const longestPause = 24 * time.Hour

// burst is the mean size of a burst: a few messages of a collective.
const burst = 256 << 10

// Flow is a source that sends bursts at the rate of a host link, with pauses between them. Sizes and pauses are
// exponential, so a flow has no memory: what is left of a burst is distributed like a whole one.
type Flow struct {
	From, To int // numbers of leaves

	share   float64
	rand    *rand.Rand
	started bool
}

// Sources returns the flows of a network with that many leaves: none if there are no two leaves.
func (s Spec) Sources(leaves int) []*Flow {
	if leaves < 2 {
		return nil
	}
	flows := make([]*Flow, s.Flows)
	for i := range flows {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
		from := r.IntN(leaves)
		flows[i] = &Flow{From: from, To: (from + 1 + r.IntN(leaves-1)) % leaves, share: s.Share, rand: r}
	}
	return flows
}

// Next returns the next pause, and the size of the burst after it. Host links have that rate, in bit/s. The first pause
// may be 0: other jobs were there before, so a flow starts in the middle of a burst as often as at any other time.
func (f *Flow) Next(rate float64) (pause time.Duration, bytes int64) {
	silence := burst * 8 / rate * (1 - f.share) / f.share // mean, in seconds
	if f.started || f.rand.Float64() >= f.share {
		pause = time.Duration(min(f.rand.ExpFloat64()*silence, longestPause.Seconds()) * float64(time.Second))
	}
	f.started = true
	return pause, 1 + int64(f.rand.ExpFloat64()*burst)
}
