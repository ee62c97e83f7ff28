package mcast

import "github.com/allcast/allcast/internal/step"

// Estimator holds what was learned about a network: one per communicator,
// outliving its operations. It answers "how long until what is not here yet
// must be taken for lost": N/B + alpha (Section III-C).
//
// Alpha is what a message and its answer take, with a margin for how much that varies. Each chunk
// that was taken for lost and then came adds to it; operations without one reduce that again. Samples
// of barriers include how far apart ranks made their calls: alpha is larger where that is much.
type Estimator struct {
	rate    float64   // B: bytes per nanosecond received, as measured
	message step.Time // how long a reliable message takes; 0: not measured yet
	dev     step.Time // mean deviation of that
	extra   step.Time // part of alpha that was learned from late chunks
	latency step.Time // how long an activation takes, from the end of a chunk to the successor's first
	lateAt  step.Time // when a chunk was last late
	limits  Limits
}

// Limits bound what an Estimator may learn.
type Limits struct {
	LinkRate float64   // bytes per nanosecond of the link; 0: unknown
	Alpha    step.Time // until something was measured
	MinAlpha step.Time
	MaxAlpha step.Time
}

// NewEstimator starts from what the fabric knows about itself.
func NewEstimator(l Limits) *Estimator {
	if l.MinAlpha <= 0 {
		l.MinAlpha = 5 * step.Microsecond
	}
	if l.MaxAlpha < l.MinAlpha {
		l.MaxAlpha = max(l.MinAlpha, step.Second)
	}
	l.Alpha = min(max(l.Alpha, l.MinAlpha), l.MaxAlpha)
	rate := l.LinkRate
	if rate <= 0 {
		rate = 0.125 // 1 Gbit/s, until something was measured
	}
	return &Estimator{rate: rate, lateAt: -l.MaxAlpha, limits: l}
}

// Alpha is the current slack.
func (e *Estimator) Alpha() step.Time {
	alpha := e.limits.Alpha
	if e.message > 0 {
		alpha = max(2*e.message+4*e.dev, e.limits.MinAlpha) // as RFC 6298 does
	}
	return min(alpha+e.extra, e.limits.MaxAlpha)
}

// Rate is the receive rate learned, in bytes per nanosecond.
func (e *Estimator) Rate() float64 { return e.rate }

// Slack is N/B + alpha.
func (e *Estimator) Slack(bytes int64) step.Time {
	return step.Time(min(float64(bytes)/e.rate, float64(maxSlack))) + e.Alpha()
}

// Transit is how long datagrams of so many bytes may still be on their way to us after we have heard
// that they were sent.
func (e *Estimator) Transit(bytes int64) step.Time {
	return step.Time(min(float64(bytes)/e.rate, float64(maxSlack))) + e.dev + e.extra + e.limits.MinAlpha/4
}

// maxSlack keeps a rate learned on a very bad day from stopping the clock.
const maxSlack = 60 * step.Second

// Received learns B from bytes that took a span to come in by multicast.
func (e *Estimator) Received(bytes int64, took step.Time) {
	if bytes <= 0 || took <= 0 {
		return
	}
	rate := float64(bytes) / float64(took)
	if took <= 16*e.message && rate <= e.rate {
		return // the time of a short one is mostly latency, and the rate at least so high
	}
	e.rate += (rate - e.rate) / 4
}

// Late learns that something taken for lost was only late. One congestion
// makes many chunks of many operations late, and counts once.
func (e *Estimator) Late(now step.Time) {
	if alpha := e.Alpha(); now-e.lateAt >= alpha {
		e.extra, e.lateAt = e.extra+min(alpha, e.limits.MaxAlpha-alpha), now
	}
}

// InTime learns that an operation took nothing for lost that was only late.
func (e *Estimator) InTime() { e.extra -= e.extra / 16 }

// Latency learns how long a reliable message takes, from a barrier: too long if the peer was late,
// too short if it was early. A sample that is much longer than those before it, because the peer had
// other things to do, counts for twice as long at most.
func (e *Estimator) Latency(sample step.Time) {
	sample = max(1, sample)
	if e.message == 0 {
		e.latency = sample
		e.message = min(sample, max(1, e.limits.Alpha/2)) // a first peer may be late by any time
		e.dev = e.message / 2
		return
	}
	diff := min(sample-e.message, e.message)
	e.message += diff / 8
	e.dev += (max(diff, -diff) - e.dev) / 4
}

// RoundTrip learns from a message that was answered at once.
func (e *Estimator) RoundTrip(sample step.Time) { e.Latency(max(1, sample/2)) }

// Handover learns from the gap that a receiver saw between the last chunk of one
// rank and the first of its successor, when an unbroken stream has a chunk every
// chunkTime. A gap means that the activation came too late; no gap may mean too
// early, which shows only as a queue somewhere, so the guess shrinks slowly until
// the next gap. All ranks see all handovers, so each profits from those before it.
// Some gaps no activation can close, such as those of blocks that take less time
// than a message: so the guess stays near what a message takes.
func (e *Estimator) Handover(gap, chunkTime step.Time) {
	if late := gap - chunkTime; late > chunkTime/8 {
		e.latency = min(e.latency+late/8, e.message+2*chunkTime)
	} else {
		e.latency = max(1, e.latency-chunkTime/16)
	}
}

// Overlap learns that a rank's first chunk came before its predecessor's last:
// the activation was much too early, or that last chunk was lost.
func (e *Estimator) Overlap(chunkTime step.Time) { e.latency = max(1, e.latency-chunkTime/4) }
