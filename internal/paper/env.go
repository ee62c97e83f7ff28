package paper

import (
	"errors"
	"sync"
)

// errUnfinished is the error of a computation that panicked.
var errUnfinished = errors.New("another entry failed to compute this value")

// Env is what an entry may use. Its zero value is ready.
type Env struct {
	Seed  uint64
	Quick bool   // whether to do less: smaller networks, fewer seeds
	Root  bool   // whether labs can be built
	Self  string // path of this program, for runs in a lab
	// Progress reports the part of the work that is done, from 0 to 1, and what runs now. Entries call progress, which
	// allows nil.
	Progress func(done float64, what string)

	mu   sync.Mutex
	memo *memo
}

// progress reports the part of the work that is done.
func (e *Env) progress(done float64, what string) {
	if e.Progress != nil {
		e.Progress(done, what)
	}
}

// ForEntry returns the Env for one entry of a run. All of them share what they compute.
func (e *Env) ForEntry(progress func(done float64, what string)) *Env {
	return &Env{Seed: e.Seed, Quick: e.Quick, Root: e.Root, Self: e.Self, Progress: progress, memo: e.shared()}
}

func (e *Env) shared() *memo {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.memo == nil {
		e.memo = &memo{values: make(map[string]*computation)}
	}
	return e.memo
}

// memo holds the values of cached.
type memo struct {
	mu     sync.Mutex // not held while a value is computed, so that one value can need another
	values map[string]*computation
}

type computation struct {
	done  chan struct{}
	value any
	err   error
}

// cached computes a value once per run, so that a figure and its claims share it. The key names the value. A value may
// need others, but not itself. A failure is not kept.
func cached[T any](e *Env, key string, compute func() (T, error)) (T, error) {
	m := e.shared()
	m.mu.Lock()
	c, found := m.values[key]
	if found {
		m.mu.Unlock()
		<-c.done
	} else {
		c = &computation{done: make(chan struct{}), err: errUnfinished}
		m.values[key] = c
		m.mu.Unlock()
		m.run(key, c, func() (any, error) { return compute() })
	}
	if c.err != nil {
		var zero T
		return zero, c.err
	}
	return c.value.(T), nil
}

// run computes a value and wakes those that wait for it, also after a panic.
func (m *memo) run(key string, c *computation, compute func() (any, error)) {
	defer func() {
		if c.err != nil {
			m.mu.Lock()
			delete(m.values, key)
			m.mu.Unlock()
		}
		close(c.done)
	}()
	c.value, c.err = compute()
}
