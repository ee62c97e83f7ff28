package control

import (
	"sync"
	"sync/atomic"
)

// A Request is a call under way.
type Request struct {
	c    *Control
	call *call
	info Info
	err  error       // how it ended, once over is set
	over atomic.Bool // it has ended

	fallback string // reason why aggregators did not make all sums; ""

	from  int   // Recv: sender of the message
	bytes int64 // Recv: size of the message

	mu    sync.Mutex
	done  chan struct{} // nil: nobody has asked for it; a waiting goroutine needs none as a rule
	hooks []func()      // called when it ends
}

// Info says how a call is carried out.
type Info struct {
	Algo              string
	Chains, Subgroups int
	Chunk             int
	Chunks            uint64 // in all
}

// Done is closed when the call has ended and the buffers are the caller's again.
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
		if r.over.Load() {
			close(r.done)
		}
	}
	return r.done
}

// Over reports whether the call has ended: Done without a channel.
func (r *Request) Over() bool { return r.over.Load() }

// Err is how the call ended; nil before it has.
func (r *Request) Err() error {
	if !r.over.Load() {
		return nil
	}
	return r.err
}

// OnDone calls f once when the call has ended, or at once if it has. f usually runs on the loop, which it must not
// block. After a failure, Close waits for f.
func (r *Request) OnDone(f func()) {
	r.mu.Lock()
	over := r.over.Load()
	if !over {
		r.hooks = append(r.hooks, f)
	}
	r.mu.Unlock()
	if over {
		f()
	}
}

// end ends the request. err is set.
func (r *Request) end() {
	r.mu.Lock()
	r.over.Store(true)
	if r.done != nil {
		close(r.done)
	}
	hooks := r.hooks
	r.hooks = nil
	r.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// Info says how the call is carried out.
func (r *Request) Info() Info { return r.info }

// Fallback is the reason why a reduction that has ended did not rely on aggregators (see node.Action); "" if it did.
func (r *Request) Fallback() string {
	if !r.over.Load() {
		return ""
	}
	return r.fallback
}

// Cancel gives up a call that is not complete: it aborts its communicator on all ranks. A Send or a Recv
// without a match is withdrawn instead. The call then ends soon.
func (r *Request) Cancel() {
	c, k := r.c, r.call
	c.submit(func() {
		if c.calls[k.id] != k || k.whole {
			return
		}
		if k.mail == nil || !c.node.Withdraw(k.info.Comm, k.id) {
			_ = c.node.Cancel(k.info.Comm) // it exists
		}
		c.act()
	})
}
