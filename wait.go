package allcast

import (
	"context"
	"errors"
	"reflect"
)

// WaitAll waits for all requests and returns their errors, joined. If ctx ends first, it returns the error of
// ctx; operations that have not ended continue, as after Request.Wait. It skips requests that are nil.
func WaitAll(ctx context.Context, requests ...*Request) error {
	_, err := waitAll(ctx, requests)
	return err
}

// waitAll is WaitAll. It also reports whether all requests have ended.
func waitAll(ctx context.Context, requests []*Request) (over bool, err error) {
	var errs []error
	for _, r := range requests {
		if r == nil {
			continue
		}
		if r.req.Wait(ctx); !r.req.Over() {
			return false, ctx.Err()
		}
		if err := r.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return true, errors.Join(errs...)
}

// maxWaitAny is the number of cases of a select, less one for the context.
const maxWaitAny = 1<<16 - 1

// WaitAny waits for the first request to end, and returns its index and its error. It skips requests that are
// nil, so that a caller may replace those that have ended by nil and wait for the next. If ctx ends first,
// or if there is no request to wait for, the index is -1.
func WaitAny(ctx context.Context, requests ...*Request) (int, error) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	at := []int{-1} // index of the request of each case
	for i, r := range requests {
		if r == nil {
			continue
		}
		if r.req.Over() {
			return i, r.Err()
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(r.Done())})
		at = append(at, i)
	}
	switch n := len(cases) - 1; {
	case n == 0:
		return -1, invalid("no requests to wait for")
	case n > maxWaitAny:
		return -1, invalid("%d requests to wait for: want %d or fewer", n, maxWaitAny)
	}
	chosen, _, _ := reflect.Select(cases)
	i := at[chosen]
	if i < 0 {
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
	over, err := waitAll(ctx, g.requests)
	if !over {
		return err
	}
	err = errors.Join(append(g.errs, err)...)
	g.requests, g.errs = nil, nil
	return err
}
