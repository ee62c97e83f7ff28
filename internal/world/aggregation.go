package world

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/settings"
)

const (
	// aggregatorPatience is how long Join waits for the aggregators. The job starts without them after that.
	aggregatorPatience = 3 * time.Second
	// wholeElement is the size in bytes that the payloads of aggregators are multiples of: that of the largest element.
	wholeElement = 8
)

// Aggregation says whether a job can use aggregators. It is the same on all ranks.
type Aggregation struct {
	Off      string `json:"o,omitempty"` // reason why no call can use aggregators; "" if the job has some
	Unusable string `json:"u,omitempty"` // reason why they could not be used when the ranks joined; "" if they could
}

// Usable reports whether the aggregators could be used when the ranks joined.
func (a Aggregation) Usable() bool { return a.Off == "" && a.Unusable == "" }

// aggregation is this rank's connection to its aggregators.
type aggregation struct {
	Aggregation
	port  *aggregate.Port // nil: there is none
	chunk int
	retry time.Duration // joinhook.Hooks.AggregatorRetry
	relay relay
}

// relay passes changes of the aggregators' state to an engine that does not exist yet when they begin.
type relay struct {
	mu   sync.Mutex
	last *inc.Aggregation // nil: nothing changed yet
	to   func(inc.Aggregation)
}

func (r *relay) changed(a inc.Aggregation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = &a
	if r.to != nil {
		r.to(a)
	}
}

func (r *relay) attach(to func(inc.Aggregation)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	if r.last != nil {
		to(*r.last)
	}
}

// aggregationOff is the reason why calls cannot use aggregators, by the settings alone.
func aggregationOff(s *settings.Settings) string {
	switch {
	case s.Tree == nil:
		return "none are configured; set Options.Aggregators or " + settings.AggregatorsVar
	case s.Size == 1:
		return "a job of one rank has nothing to send"
	case s.Secure:
		return "encryption (Options.Secure, ALLCAST_SECURE) hides the values from them"
	case s.Integrity:
		return "integrity checks (Options.Integrity, ALLCAST_INTEGRITY) cannot cover sums that they make"
	}
	return ""
}

// connectAggregators opens the connection to the aggregators. All ranks call it. Aggregators that cannot be reached
// are no error: this rank keeps trying in the background.
func (j *joining) connectAggregators(ctx context.Context, chunk int) error {
	a := &j.aggregation
	if a.Off = aggregationOff(&j.Settings); a.Off != "" {
		if j.Tree != nil && j.Rank == 0 {
			j.Logger.Info("aggregators are not used", "reason", a.Off)
		}
		return nil
	}
	hooks := joinhook.From(ctx)
	a.chunk, a.retry = chunk, hooks.AggregatorRetry
	var err error
	a.port, err = aggregate.Open(aggregate.PortConfig{
		Tree: j.Tree, Rank: j.Rank, SiteKey: j.SiteKey, Job: fmt.Sprintf("%016x", j.number("job")),
		Session: max(1, uint32(j.number("aggregation"))), Secret: mac(j.secret, "allcast aggregation secret"),
		Local: j.local, Chunk: chunk, Window: inc.WantedWindow(j.Tree.Size()), Buffer: j.ReceiveBuffer, Logger: j.Logger,
		Changed: a.relay.changed, Timing: aggregate.Timing{Retry: a.retry},
	})
	mine := report{Failed: err != nil}
	if err != nil {
		a.port, mine.Why = nil, err.Error()
	} else {
		wait, cancel := context.WithTimeout(ctx, cmp.Or(hooks.AggregatorPatience, aggregatorPatience))
		state := a.port.Wait(wait)
		cancel()
		mine.Works, mine.Why = state.Window > 0, state.Why
	}
	a.Aggregation, err = fold(ctx, j.session, mine, judge)
	if a.Off != "" { // no rank uses them
		a.undo()
		a.port = nil
	}
	return err
}

// A report is what a rank tells the others about its aggregators.
type report struct {
	Works  bool   `json:"w,omitempty"`
	Failed bool   `json:"f,omitempty"` // and it will not try again
	Why    string `json:"y,omitempty"`
}

// judge combines the reports of all ranks.
func judge(all []report) (a Aggregation, _ error) {
	for r, s := range all {
		why := fmt.Sprintf("rank %d: %s", r, cmp.Or(s.Why, "no answer"))
		if s.Failed {
			a.Off = cmp.Or(a.Off, why)
		}
		if !s.Works {
			a.Unusable = cmp.Or(a.Unusable, why)
		}
	}
	return a, nil
}

// undo closes the connection of a Join that failed.
func (a *aggregation) undo() {
	if a.port != nil {
		_ = a.port.Close()
	}
}

// reduction describes the aggregators to the engine, which closes the connection.
func (j *joining) reduction() (r engine.Reduction) {
	a := &j.aggregation
	if a.port == nil {
		return r
	}
	return engine.Reduction{
		Aggregators: fault.WrapAggregators(a.port, j.Fault, j.Rank), Tree: j.Tree, Chunk: a.chunk,
		State: a.port.State(), Warned: a.Unusable != "", Retry: a.retry, Traffic: func() engine.PortTraffic {
			s := a.port.Stats()
			return engine.PortTraffic{Sent: s.Sent, SentBytes: s.SentBytes, Unsent: s.Unsent, Dropped: s.Dropped}
		},
	}
}

// treeHash lets ranks compare their aggregators; it is 0 for none.
func treeHash(t *inc.Tree) uint64 {
	if t == nil {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(t.String()))
	return max(1, h.Sum64()>>11) // fits a JSON number exactly
}
