//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
)

// Tags of messages. Those of rings repeat, so that a message that should be gone would be noticed. A Recv
// from any source must not match a message of a later step, so each step has its own tag until all ranks have
// voted again.
const (
	ringTags = 3
	anyTags  = 64
)

// ring is an exchange of messages: each rank sends one to another rank and receives one.
type ring struct {
	c             comm
	to, from, tag int
	out, in       []byte
	want          pattern
}

// newRing prepares a ring. Its buffers belong to f.
func (r *rank) newRing(f *testCall, c comm, st step, distance int) (*ring, error) {
	id, me, size := r.call<<2, c.Rank(), c.Size()
	x := &ring{c: c, to: (me + distance) % size, from: (me + size - distance) % size, tag: int(st.root >> 8 % ringTags)}
	var err error
	if x.out, err = r.buffer(f, st.size); err != nil {
		return nil, err
	}
	if x.in, err = r.buffer(f, st.size+st.n); err != nil { // longer than the message
		return nil, err
	}
	r.script.between(id, c.WorldRank(me), c.WorldRank(x.to)).fill(x.out)
	x.want = r.script.between(id, c.WorldRank(x.from), c.WorldRank(me))
	return x, nil
}

func (x *ring) startSend() (*allcast.Request, error) { return x.c.StartSend(x.out, x.to, x.tag) }
func (x *ring) startRecv() (*allcast.Request, error) { return x.c.StartRecv(x.in, x.from, x.tag) }

// check compares a message that was received.
func (x *ring) check(m allcast.Message) error {
	if want := (allcast.Message{Source: x.from, Tag: x.tag, Bytes: len(x.out)}); m != want {
		return fmt.Errorf("received %+v, want %+v", m, want)
	}
	return x.want.check(x.in[:m.Bytes])
}

// flight is a ring whose messages are under way during other steps.
type flight struct {
	due      uint64 // call before which the rank waits for them
	f        *testCall
	comm     string
	requests []*allcast.Request
	size     int
}

// ring passes messages around. The ranks block in Send, in Recv, or in both, or wait some steps later.
func (r *rank) ring(ctx context.Context, c comm, st step) error {
	if c.Size() == 1 {
		return nil
	}
	variant := st.root >> 16 % 3
	distance := 1
	if variant != 2 {
		distance += int(st.root % uint64(c.Size()-1))
	}
	f := &testCall{alloc: st.alloc}
	x, err := r.newRing(f, c, st, distance)
	if err != nil {
		return err
	}
	var g allcast.Group
	var m allcast.Message
	send := &testCall{message: true, call: func(ctx context.Context) error { return c.Send(ctx, x.out, x.to, x.tag) }}
	recv := &testCall{message: true, call: func(ctx context.Context) (err error) {
		m, err = c.Recv(ctx, x.in, x.from, x.tag)
		return err
	}}
	f.verify = func() error { return x.check(m) }
	requests := func() []*allcast.Request { return g.Requests() }
	switch {
	case st.delay > 0:
		g.Add(x.startRecv())
		g.Add(x.startSend())
		if all := requests(); len(all) == 2 {
			f.verify = func() error { return x.check(all[0].Message()) }
			r.flights = append(r.flights, flight{r.call + uint64(st.delay), f, c.name, all, 2 * st.size})
			return nil
		}
	case variant == 0:
		g.Add(x.startRecv())
		all := requests()
		if err = r.callWithDeadline(ctx, c, send); err == nil && len(all) == 1 {
			f.verify = func() error { return x.check(all[0].Message()) }
		}
	case variant == 1:
		g.Add(x.startSend())
		err = r.callWithDeadline(ctx, c, recv)
	default:
		calls := []*testCall{send, recv}
		if c.Rank()%2 == 1 {
			slices.Reverse(calls)
		}
		if err = r.callWithDeadline(ctx, c, calls[0]); err == nil {
			err = r.callWithDeadline(ctx, c, calls[1])
		}
	}
	// If a call has failed, the communicator is broken, so the others end as well.
	if err = errors.Join(err, g.Wait(ctx)); err == nil {
		err = r.verify(f, 2*st.size)
	}
	return errors.Join(err, r.finish(f))
}

// land waits for the flights that are due before a call.
func (r *rank) land(ctx context.Context, call uint64) error {
	var due []flight
	r.flights = slices.DeleteFunc(r.flights, func(x flight) bool {
		if x.due <= call {
			due = append(due, x)
		}
		return x.due <= call
	})
	for i, x := range due {
		r.startWatch("wait for messages")
		r.commName = x.comm
		err := allcast.WaitAll(ctx, x.requests...)
		r.watchdog.callReturns()
		if err == nil {
			err = r.verify(x.f, x.size)
		}
		if err = errors.Join(err, r.finish(x.f)); err != nil && !r.continuesAfter(err) {
			r.flights = append(r.flights, due[i+1:]...)
			return err
		}
	}
	return nil
}

// abandon waits for flights on communicators that have all been aborted.
func (r *rank) abandon(ctx context.Context) error {
	r.startWatch("wait for messages of aborted communicators")
	defer r.watchdog.callReturns()
	for _, x := range r.flights {
		_ = allcast.WaitAll(ctx, x.requests...) // some have succeeded, others have failed
		if err := r.finish(x.f); err != nil {
			return err
		}
	}
	r.flights = nil
	return nil
}

// anySource lets one rank receive a message of each other rank, in any order. A Recv from any source ends only once
// all other ranks have closed the communicator, so in mode leave it needs one that only all of them close.
func (r *rank) anySource(ctx context.Context, c comm, st step) error {
	if r.script.mode == modeLeave && c.name != r.main.name && c.Size() > 2 {
		return nil
	}
	root, n, tag := int(st.root%uint64(c.Size())), st.size/c.Size(), ringTags+int(r.call%anyTags)
	f := &testCall{alloc: st.alloc, message: true}
	buf, err := r.buffer(f, n)
	if err != nil {
		return err
	}
	from := func(rank int) pattern { return r.script.between(r.call<<2, c.WorldRank(rank), c.WorldRank(root)) }
	var m allcast.Message
	seen := make([]bool, c.Size())
	f.verify = func() error { return nil }
	f.call = func(ctx context.Context) error { return c.Send(ctx, buf, root, tag) }
	times := 1
	if c.Rank() == root {
		times = c.Size() - 1
		f.call = func(ctx context.Context) (err error) {
			m, err = c.Recv(ctx, buf, allcast.AnySource, tag)
			return err
		}
		f.verify = func() error {
			if m.Bytes != n || m.Tag != tag || seen[m.Source] {
				return fmt.Errorf("received %+v, and a message of that rank before: %v", m, seen[m.Source])
			}
			seen[m.Source] = true
			return from(m.Source).check(buf)
		}
	} else {
		from(c.Rank()).fill(buf)
	}
	for range times {
		if err = r.callWithDeadline(ctx, c, f); err == nil {
			err = r.verify(f, n)
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, r.finish(f))
}

// truncated lets one rank send a message that is too long for the buffer of another.
func (r *rank) truncated(ctx context.Context, c comm, st step) error {
	from := int(st.root % uint64(c.Size()))
	to, tag := (from+1)%c.Size(), int(st.root>>8%ringTags)
	if c.Size() == 1 || c.Rank() != from && c.Rank() != to {
		return nil
	}
	f := &testCall{alloc: st.alloc, message: true, verify: func() error { return nil }}
	n := st.size
	if c.Rank() == from {
		n++
	}
	buf, err := r.buffer(f, n)
	if err != nil {
		return err
	}
	f.call = func(ctx context.Context) error {
		if c.Rank() == from {
			return c.Send(ctx, buf, to, tag)
		}
		m, err := c.Recv(ctx, buf, from, tag)
		switch {
		case errors.Is(err, allcast.ErrTruncated):
			return nil
		case err == nil:
			return fmt.Errorf("%w: received %+v into %d bytes", errContract, m, len(buf))
		}
		return err
	}
	if err = r.callWithDeadline(ctx, c, f); err == nil {
		err = r.verify(f, n)
	}
	return errors.Join(err, r.finish(f))
}

// group runs messages and collectives at the same time, and waits for all of them.
func (r *rank) group(ctx context.Context, c comm, st step) error {
	var calls []*testCall
	var g allcast.Group
	for i, do := range []string{"allgather", "broadcast-coalesced"} {
		part := st
		list := algorithms[do]
		part.do, part.size, part.algo = do, st.size/3, list[st.root%uint64(len(list))]
		f, err := r.prepare(c, part, uint64(1+i))
		if err != nil {
			return err
		}
		calls = append(calls, f)
		g.Add(f.start())
	}
	if c.Size() > 1 {
		f, part := &testCall{alloc: st.alloc}, st
		part.size /= 3
		x, err := r.newRing(f, c, part, 1)
		if err != nil {
			return err
		}
		calls = append(calls, f)
		g.Add(x.startSend())
		recv, err := x.startRecv()
		g.Add(recv, err)
		f.verify = func() error { return x.check(recv.Message()) }
	}
	err := r.waitForGroup(ctx, &g)
	for _, f := range calls {
		if err == nil {
			err = r.verify(f, st.size/3)
		}
		if err := r.finish(f); err != nil {
			return err
		}
	}
	return err
}

// waitForGroup waits for a group. If a context ends, the group must keep its operations, and they continue.
func (r *rank) waitForGroup(ctx context.Context, g *allcast.Group) error {
	limited, cancel := r.randomDeadline(ctx, oftenDeadlines)
	defer cancel()
	if limited != ctx {
		n := len(g.Requests())
		err := g.Wait(limited)
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if len(g.Requests()) != n {
			return fmt.Errorf("%w: a group kept %d of %d operations: %w", errContract, len(g.Requests()), n, err)
		}
		r.count.Withdrawn++
	}
	return g.Wait(ctx)
}
