package mcast

import "github.com/allcast/allcast/internal/step"

// An Estimator holds measurements of a network. Each communicator has one, which outlives its
// operations. It computes when a rank must consider a missing chunk lost: after N/B + alpha
// (Section III-C).
//
// Alpha is the time of a message and its answer, with a margin for the variation. The samples are the
// exchanges of each barrier and the first answer to each fetch. Each chunk that arrives after it was
// considered lost increases alpha. Each operation without such a chunk reduces the increase. Barrier
// samples include the time between the ranks' calls, so alpha is larger where that skew is large.
type Estimator struct {
	rate    float64   // B: measured receive rate in bytes per nanosecond
	message step.Time // latency of a reliable message; 0 before the first measurement
	dev     step.Time // mean deviation of message
	extra   step.Time // part of alpha learned from late chunks
	latency step.Time // latency of an activation, from the end of a chunk to the successor's first chunk
	lateAt  step.Time // time of the last late chunk
	skew    step.Time // time for which senders of eager calls may be silent because they are late
	limits  Limits
}

// Limits bound the values that an Estimator learns.
type Limits struct {
	LinkRate float64   // bytes per nanosecond of the link; 0 if unknown
	Alpha    step.Time // alpha before the first measurement
	MinAlpha step.Time
	MaxAlpha step.Time
}

// NewEstimator returns an Estimator that starts from the limits of the fabric.
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
		rate = 0.125 // 1 Gbit/s until the first measurement
	}
	return &Estimator{rate: rate, lateAt: -l.MaxAlpha, skew: l.Alpha, limits: l}
}

// Alpha returns the current slack.
func (e *Estimator) Alpha() step.Time {
	alpha := e.limits.Alpha
	if e.message > 0 {
		alpha = max(2*e.message+4*e.dev, e.limits.MinAlpha) // as in RFC 6298
	}
	return min(alpha+e.extra, e.limits.MaxAlpha)
}

// Measured reports whether the Estimator has measured a message. Otherwise Alpha is a guess.
func (e *Estimator) Measured() bool { return e.message > 0 }

// Slack returns N/B + alpha.
func (e *Estimator) Slack(bytes int64) step.Time {
	return transferTime(bytes, e.rate) + e.Alpha()
}

// Patience returns how long to wait for data of a rank that may not have made its call yet: N/B + alpha, and at least
// twice as long as the data of such ranks usually takes.
func (e *Estimator) Patience(bytes int64) step.Time {
	return transferTime(bytes, e.rate) + max(e.Alpha(), e.skew)
}

// Waited learns how long the first data of ranks took that may have made their calls late.
func (e *Estimator) Waited(took step.Time) {
	took = min(2*max(0, took), e.limits.Alpha)
	e.skew = max(took, e.skew-(e.skew-took)/64)
}

// Transit returns how long datagrams of this total size may still be in transit after this rank has
// learned that they were sent.
func (e *Estimator) Transit(bytes int64) step.Time {
	return transferTime(bytes, e.rate) + e.dev + e.extra + e.limits.MinAlpha/4
}

// roundTripBytes returns how many bytes arrive while a message travels and its answer returns.
func (e *Estimator) roundTripBytes() float64 { return e.rate * float64(2*e.message) }

// transferTime returns how long bytes take at a rate, and at most maxSlack.
func transferTime(bytes int64, rate float64) step.Time {
	return step.Time(min(float64(bytes)/rate, float64(maxSlack)))
}

// maxSlack bounds the cutoff when a rank has learned a very low rate.
const maxSlack = 60 * step.Second

// Received learns B from bytes that arrived by multicast within the time took.
func (e *Estimator) Received(bytes int64, took step.Time) {
	if bytes <= 0 || took <= 0 {
		return
	}
	rate := float64(bytes) / float64(took)
	if took <= 16*e.message && rate <= e.rate {
		return // a short transfer is mostly latency, so the true rate is at least this high
	}
	e.rate += (rate - e.rate) / 4
}

// Late learns that a chunk considered lost was only late. One congestion event delays many chunks of
// many operations, but counts once.
func (e *Estimator) Late(now step.Time) {
	if alpha := e.Alpha(); now-e.lateAt >= alpha {
		e.extra, e.lateAt = e.extra+min(alpha, e.limits.MaxAlpha-alpha), now
	}
}

// InTime learns that no chunk of an operation was late.
func (e *Estimator) InTime() { e.extra -= e.extra / 16 }

// Latency learns the latency of a reliable message from a barrier. A sample is too long if the peer
// was late, and too short if the peer was early. A sample far above the average, because the peer
// was busy, counts as at most twice the average.
func (e *Estimator) Latency(sample step.Time) {
	sample = max(1, sample)
	if e.message == 0 {
		e.latency = sample
		e.message = min(sample, max(1, e.limits.Alpha/2)) // the first peer may be late by any time
		e.dev = e.message / 2
		return
	}
	diff := min(sample-e.message, e.message)
	e.message += diff / 8
	e.dev += (max(diff, -diff) - e.dev) / 4
}

// RoundTrip learns from a message that the peer answered at once.
func (e *Estimator) RoundTrip(sample step.Time) { e.Latency(max(1, sample/2)) }

// Handover learns from the gap between the last chunk of one rank and the first chunk of its
// successor, as a receiver sees it. An unbroken stream has one chunk per chunkTime. A gap means that
// the activation arrived too late. No gap may mean that it arrived too early, which shows only as a
// queue elsewhere; the estimate therefore shrinks slowly until the next gap. All ranks see all
// handovers, so each rank profits from the earlier ones. No activation can close some gaps, such as
// those of blocks shorter than a message's latency, so the estimate stays near that latency.
func (e *Estimator) Handover(gap, chunkTime step.Time) {
	if late := gap - chunkTime; late > chunkTime/8 {
		e.latency = min(e.latency+late/8, e.message+2*chunkTime)
	} else {
		e.latency = max(1, e.latency-chunkTime/16)
	}
}

// Overlap learns that a rank's first chunk arrived before its predecessor's last chunk: the
// activation was much too early, or that last chunk was lost.
func (e *Estimator) Overlap(chunkTime step.Time) { e.latency = max(1, e.latency-chunkTime/4) }
