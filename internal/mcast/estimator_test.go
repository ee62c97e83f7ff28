package mcast

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/step"
)

func drawLimits(t *rapid.T) Limits {
	span := rapid.Int64Range(0, int64(3600*step.Second))
	return Limits{
		LinkRate: rapid.SampledFrom([]float64{0, 0.125, 7, 25, 200}).Draw(t, "link rate"),
		Alpha:    step.Time(span.Draw(t, "alpha")),
		MinAlpha: step.Time(span.Draw(t, "least alpha")),
		MaxAlpha: step.Time(span.Draw(t, "most alpha")),
	}
}

// Whatever an Estimator learns: alpha stays within its limits, B and the
// latency stay positive, and more to come never means less patience.
func TestEstimatorStaysWithinItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := NewEstimator(drawLimits(t))
		bytes := rapid.Int64Range(0, 1<<40)
		span := rapid.Int64Range(0, int64(100*step.Second))
		now := step.Time(0)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if e.Alpha() < e.limits.MinAlpha || e.Alpha() > e.limits.MaxAlpha || e.Alpha() <= 0 {
					t.Fatalf("alpha %d, limits %d to %d", e.Alpha(), e.limits.MinAlpha, e.limits.MaxAlpha)
				}
				if e.rate <= 0 || e.latency < 0 {
					t.Fatalf("rate %g, latency %d", e.rate, e.latency)
				}
				if e.Slack(0) != e.Alpha() {
					t.Fatalf("slack for nothing is %d, alpha %d", e.Slack(0), e.Alpha())
				}
				a, b := bytes.Draw(t, "a"), bytes.Draw(t, "b")
				if a < b && e.Slack(a) > e.Slack(b) {
					t.Fatalf("slack for %d is %d, for %d only %d", a, e.Slack(a), b, e.Slack(b))
				}
			},
			"Late": func(t *rapid.T) {
				// One congestion makes many chunks late and counts once.
				before := e.Alpha()
				now += before
				e.Late(now)
				after := e.Alpha()
				e.Late(now + after - 1)
				if after < before || (after == before && before != e.limits.MaxAlpha) || e.Alpha() != after {
					t.Fatalf("a late chunk moved alpha from %d to %d, another one soon after it to %d", before, after, e.Alpha())
				}
			},
			"Clean": func(t *rapid.T) {
				before := e.Alpha()
				e.InTime()
				if e.Alpha() > before {
					t.Fatalf("a clean run moved alpha from %d to %d", before, e.Alpha())
				}
			},
			"Received": func(t *rapid.T) { e.Received(bytes.Draw(t, "bytes"), step.Time(span.Draw(t, "took"))) },
			"Latency":  func(t *rapid.T) { e.Latency(step.Time(span.Draw(t, "sample"))) },
			"Handover": func(t *rapid.T) { e.Handover(step.Time(span.Draw(t, "gap")), step.Time(span.Draw(t, "chunk"))) },
			"Overlap":  func(t *rapid.T) { e.Overlap(step.Time(span.Draw(t, "chunk"))) },
		})
	})
}

// B converges to the measured rate from both sides.
func TestEstimatorLearnsTheRate(t *testing.T) {
	for _, start := range []float64{0.125, 7, 100} {
		e := NewEstimator(Limits{LinkRate: start})
		for range 40 {
			e.Received(7<<20, 1<<20)
		}
		if e.rate < 6.9 || e.rate > 7.1 {
			t.Errorf("from %g: %g bytes/ns, 7 were measured", start, e.rate)
		}
	}
	e := NewEstimator(Limits{LinkRate: 7})
	e.Received(0, 100)
	e.Received(100, 0)
	if e.rate != 7 {
		t.Errorf("nothing was measured and the rate is %g", e.rate)
	}
}

// With N/B and alpha in round numbers: 1 MB at 1 byte/ns is 1 ms.
func TestSlackIsNOverBPlusAlpha(t *testing.T) {
	e := NewEstimator(Limits{
		LinkRate: 1, Alpha: 50 * step.Microsecond, MinAlpha: 50 * step.Microsecond, MaxAlpha: step.Second,
	})
	if got, want := e.Slack(1_000_000), step.Millisecond+50*step.Microsecond; got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

// Gaps between blocks raise the latency until they are gone, up to what a
// message can take; no gap lets it fall again, slowly, and never to nothing.
func TestHandoverFindsTheLatency(t *testing.T) {
	const chunk = 1000
	const truth = 5 * chunk
	e := NewEstimator(Limits{LinkRate: 4})
	e.Latency(4 * chunk)
	for range 200 {
		// An activation sent latency before the end arrives truth later.
		e.Handover(max(chunk, chunk+truth-e.latency), chunk)
	}
	if e.latency < truth*8/10 || e.latency > truth*12/10 {
		t.Errorf("latency %d, want about %d", e.latency, truth)
	}
	for range 200 {
		e.Handover(100*truth, chunk)
	}
	if e.latency > 6*chunk {
		t.Errorf("latency %d where a message takes %d", e.latency, 4*chunk)
	}
	for range 1000 {
		e.Handover(chunk, chunk)
	}
	if e.latency != 1 {
		t.Errorf("without gaps the latency became %d", e.latency)
	}
}
