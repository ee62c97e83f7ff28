package allcast

import (
	"context"
	"errors"
	"reflect"
)

// WaitAll waits for all requests and returns their errors, joined. If ctx ends first, it returns the error of
// ctx; operations that have not ended continue, as after Request.Wait.
func WaitAll(ctx context.Context, requests ...*Request) error {
	if !allOver(ctx, requests) {
		return ctx.Err()
	}
	errs := make([]error, len(requests))
	for i, r := range requests {
		errs[i] = r.Err()
	}
	return errors.Join(errs...)
}

// allOver waits for requests, and reports whether all of them have ended. Otherwise ctx has ended.
func allOver(ctx context.Context, requests []*Request) bool {
	for _, r := range requests {
		r.req.Wait(ctx)
		if !r.req.Over() {
			return false
		}
	}
	return true
}

// WaitAny waits for the first request to end, and returns its index and its error. If ctx ends first, or if there
// are no requests, the index is -1.
func WaitAny(ctx context.Context, requests ...*Request) (int, error) {
	cases := make([]reflect.SelectCase, 0, len(requests)+1)
	for i, r := range requests {
		if r.req.Over() {
			return i, r.Err()
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(r.Done())})
	}
	if len(requests) == 0 {
		return -1, invalid("no requests to wait for")
	}
	cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())})
	i, _, _ := reflect.Select(cases)
	if i == len(requests) {
		return -1, ctx.Err()
	}
	return i, requests[i].Err()
}

// A Group collects operations that run at the same time, so that a caller can wait for all of them. Its zero value
// is an empty group. Like a group of NCCL, it lets ranks exchange messages in any order without deadlock:
//
//	var g allcast.Group
//	g.Add(c.StartSend(out, right, 0))
//	g.Add(c.StartRecv(in, left, 0))
//	err := g.Wait(ctx)
//
// Its methods must not be called concurrently.
type Group struct {
	requests []*Request
	errs     []error
}

// Add adds an operation. It takes the results of a Start method.
func (g *Group) Add(r *Request, err error) {
	if err != nil {
		g.errs = append(g.errs, err)
		return
	}
	g.requests = append(g.requests, r)
}

// Requests returns the operations that have started.
func (g *Group) Requests() []*Request { return g.requests }

// Wait waits for all operations of the group and empties it. It returns the errors of operations that could
// not start and of those that failed, joined. If ctx ends first, the group keeps its operations.
func (g *Group) Wait(ctx context.Context) error {
	if !allOver(ctx, g.requests) {
		return ctx.Err()
	}
	err := errors.Join(append(g.errs, WaitAll(ctx, g.requests...))...)
	g.requests, g.errs = nil, nil
	return err
}
