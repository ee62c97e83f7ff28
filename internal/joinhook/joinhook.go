// Package joinhook passes settings to allcast.Join that only tests and language bindings need.
package joinhook

import (
	"context"
	"net"
	"time"
)

// Hooks are settings of a Join. All ranks that run in one process may share them.
type Hooks struct {
	Listener net.Listener // rendezvous socket of rank 0, instead of a new one at Options.Addr

	// Env looks up variables of the environment, instead of os.LookupEnv.
	Env func(name string) (value string, set bool)

	// Watch is called whenever an operation of a rank enters a phase, passes its turn on, or sends a
	// piece. The rank's control side makes no progress until Watch returns.
	Watch func(rank int, comm uint32, seq uint64, phase string)

	// AggregatorPatience is how long Join waits for aggregators; 0 for the default.
	AggregatorPatience time.Duration

	// AggregatorRetry is the interval at which ranks try again to use aggregators that did not work; 0 for the default.
	AggregatorRetry time.Duration
}

type key struct{}

// With returns a context for Join that carries hooks.
func With(ctx context.Context, h Hooks) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the hooks that ctx carries, or the zero value.
func From(ctx context.Context) Hooks {
	h, _ := ctx.Value(key{}).(Hooks)
	return h
}
