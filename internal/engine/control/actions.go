package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func (c *Control) begin(now step.Time, k *call) {
	c.lastReq++
	req := c.lastReq
	c.calls[req] = k
	k.id = req
	k.info.Begin = now
	if k.mail == nil {
		k.info.Seq = c.node.NextSeq(k.info.Comm)
	}
	c.obs.TraceStart(&k.info)
	var err error
	switch {
	case !c.is(running):
		err = ErrClosed
	case k.mail != nil:
		err = c.beginMail(now, req, k)
	case k.reduction != nil:
		err = c.node.StartReduction(now, k.info.Comm, req, k.reduction, k.rounds)
	case k.rounds != nil:
		err = c.node.Start(now, k.info.Comm, req, k.rounds)
	default:
		err = c.node.StartPlan(now, k.info.Comm, req, k.bufs.Plan)
	}
	switch {
	case err != nil:
		c.end(req, err)
	case k.deadline != step.Never:
		c.node.SetDeadline(k.info.Comm, req, k.deadline)
	}
}

// maxInlineFinish is the size up to which the loop itself finishes a call.
const maxInlineFinish = 64 << 10

// complete ends a call that went well, once it is finished: an average is still to be divided.
func (c *Control) complete(req uint64) {
	k := c.calls[req]
	k.whole = true
	switch {
	case k.finish == nil:
		c.end(req, nil)
	case len(k.bufs.Recv) <= maxInlineFinish:
		c.end(req, k.finish())
	default:
		go func() {
			err := k.finish()
			c.submit(func() { c.end(req, err) })
		}()
	}
}

func (c *Control) end(req uint64, err error) {
	k := c.calls[req]
	delete(c.calls, req)
	k.req.err = err
	closing := !c.is(running)
	wait := c.obs.TraceEnd(&k.info, err, closing || k.info.Lifecycle && c.leaving != nil)
	c.data.Drop(&k.bufs)
	k.finish = nil // it may hold buffers, and the caller may keep the request
	if err != nil && breaks(err) && !closing {
		// The caller may exit because of the error, and other ranks that only notice the exit would
		// blame this rank. The verdict leaves first.
		c.reports.Go(func() {
			c.rel.Flush(flushLimit)
			if wait != nil {
				wait()
			}
			c.report(k)
		})
	} else {
		c.report(k)
	}
	c.checkIdle()
}

// report ends a request, and wakes the goroutine that waits for it. Free may now take the call's memory.
func (c *Control) report(k *call) {
	c.data.Memory.Unuse(&k.bufs)
	k.req.end()
	if c.data.Polling.Leader() == datapath.LeaderSleeps {
		c.poller.Kick()
	}
}

// flushLimit is how long a failure is held back until other ranks have heard of it.
const flushLimit = 500 * time.Millisecond

func (c *Control) checkIdle() {
	if c.whenIdle != nil && len(c.calls) == 0 {
		c.whenIdle()
		c.whenIdle = nil
	}
}

func (c *Control) act() {
	for {
		acts := c.node.Actions()
		if len(acts) == 0 {
			return
		}
		for i := range acts {
			next := &noAction
			if i+1 < len(acts) {
				next = &acts[i+1]
			}
			c.carryOut(&acts[i], next)
		}
	}
}

var noAction node.Action

// follows reports whether b goes to the same peer as a, so that a may wait for it.
func follows(a, b *node.Action) bool {
	return a.To == b.To && (b.Kind == node.Put || b.Kind == node.Send && b.Msg.Kind != 0)
}

func (c *Control) carryOut(a, next *node.Action) {
	key := fabric.OpKey{Comm: a.Comm, Seq: a.Seq}
	c.obs.TraceAction(a)
	switch a.Kind {
	case node.Send:
		c.msg = wire.AppendMsg(c.msg[:0], &a.Msg)
		if follows(a, next) {
			c.rel.SendMore(a.To, c.msg)
		} else {
			c.rel.Send(a.To, c.msg)
		}
	case node.Open:
		c.startRound(key, a)
	case node.Multicast:
		c.data.Operation(key).Multicast(a.Stream, a.PSN, a.N)
	case node.Read:
		c.data.Operation(key).Read(a.To, a.Stream, a.Ranges)
	case node.Put:
		c.data.Operation(key).Put(a.To, a.PSN, &p2p.Send{Off: a.Off, Len: a.Len, Input: a.Input, Parts: a.Parts})
	case node.Release:
		op := c.data.Operation(key)
		op.Release()
		c.node.Foreign(op.Unexpected())
	case node.Quiesce:
		if op := c.data.Operation(key); op.Quiesce() {
			c.quiesced(op)
		}
	case node.Done:
		c.done(a)
	case node.Closed:
		// Datagrams of the operation may still come, but no other operation has their token.
		c.data.Forget(key)
		c.node.Drained(c.now(), a.Comm, a.Seq)
	case node.Drop:
		c.obs.TraceDrop(a.To, c.leaving != nil || !c.is(running))
		c.rel.Drop(a.To)
	case node.Settled:
		c.agreed(a)
	case node.Removed:
		c.removed(a.Comm)
	case node.Digest:
		if sum, done := c.data.Operation(key).Digest(); done {
			c.node.Digested(c.now(), key.Comm, key.Seq, sum)
		}
	case node.Contribute:
		c.data.Operation(key).Contribute(a.PSN, a.N, a.Try, a.Offer)
	case node.Fetch:
		c.data.Operation(key).Fetch(a.PSN, a.N)
	default:
		panic(fmt.Sprintf("control: unknown action %d", a.Kind))
	}
}

func (c *Control) done(a *node.Action) {
	k := c.calls[a.Req]
	if k.mail != nil {
		k.req.from, k.req.bytes = a.To, a.Len
	}
	c.reduced(k, a.Fallback, a.Err != nil)
	if a.Err == nil {
		c.complete(a.Req)
		return
	}
	if breaks(a.Err) {
		c.forgetEarly(a.Comm)
	}
	if !c.is(running) && a.Err.Reason == node.Left && a.Err.Culprit == c.cfg.Rank {
		c.end(a.Req, ErrClosed) // Close ends calls this way
		return
	}
	if c.fault != nil && a.Err.Reason == node.Lost && a.Err.Culprit == c.cfg.Rank {
		c.end(a.Req, fmt.Errorf("%w: %w", a.Err, c.fault))
		return
	}
	c.end(a.Req, a.Err)
}

// breaks reports whether an error concerns more than the Send or the Recv that it ends.
func breaks(err error) bool {
	var e *node.Error
	return !errors.As(err, &e) || !e.Reason.OneCall()
}

// startRound lets the datapath move the data of a round.
func (c *Control) startRound(key fabric.OpKey, a *node.Action) {
	k := c.calls[a.Req]
	if k.mail != nil {
		k.fitMail(a.Len)
	}
	bufs := &k.bufs
	op := c.data.StartRound(datapath.Round{
		Key: key, Buffers: bufs, Geometry: a.Geometry, Placements: a.Placements, Inbox: a.Inbox,
		Eager: a.Eager, Reduction: a.Reduction, Layout: a.Layout, Record: a.Record, Number: a.Number,
	})
	bufs.Group.Began(c.node.NextRound(key.Comm))
	if j := c.comms.joining[key.Comm]; j != nil && a.Geometry != nil && len(bufs.Group.Members) > 1 {
		j.held = append(j.held, op)
		return
	}
	c.opened(op)
	if a.Inbox != nil {
		c.recall(op)
	}
}

// opened tells the node that a round may begin, once that is so.
func (c *Control) opened(op *datapath.Operation) {
	if ready, offloaded := op.Ready(); ready {
		c.node.Opened(c.now(), op.Key.Comm, op.Key.Seq, offloaded)
	}
}

// quiesced tells the node that nothing touches the buffers of a failed round any more.
func (c *Control) quiesced(op *datapath.Operation) {
	c.node.Foreign(op.Unexpected())
	c.node.Quiesced(op.Key.Comm, op.Key.Seq)
}
