package allcast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/wire"
	"github.com/allcast/allcast/internal/world"
)

// A Comm is a group of ranks that communicate. Its methods may be called from
// several goroutines, but the operations on it must begin in the same order on all
// its ranks.
//
// A blocking operation whose context ends before it has completed aborts the communicator: all
// operations on it that have not completed fail, on all ranks, and only Shrink and Close are of use
// afterwards. The call returns once nothing can touch its buffers any more, with an error that
// matches the context's and ErrAborted. Later operations on this rank fail at once with the same
// error. If the context had ended before the call, nothing begins. Request.Wait is different: its
// context ends the waiting only.
type Comm struct {
	job     *job
	id      uint32 // the same on all members, and no other communicator's
	rank    int
	members []int // world ranks
	closed  atomic.Bool

	cancelled atomic.Pointer[RankError] // error of the first blocking call whose context ended
}

// job is what all communicators of a process share.
type job struct {
	*world.World
	tuning  tuning
	timeout time.Duration
	splits  atomic.Uint32 // so many were begun

	measured *calibration // nil: it was not
	log      *slog.Logger
	server   *observe.Server // tells people what we are at
}

// Join meets the other ranks of the job and returns the communicator of all of
// them. All ranks call it; it fails on all of them if one does not come, or came
// with other options.
func Join(ctx context.Context, o Options) (*Comm, error) {
	cfg, tune, err := o.settle(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	inspectable, err := inspectOn(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	metrics, err := listenMetrics(os.LookupEnv, &cfg)
	if err != nil {
		return nil, err
	}
	w, err := world.Join(ctx, cfg)
	if err != nil {
		closeListener(metrics)
		return nil, fmt.Errorf("allcast: join as rank %d of %d: %w", cfg.Rank, cfg.Size, err)
	}
	j := &job{World: w, tuning: tune, timeout: cfg.Timeout, log: cfg.Log}
	c := &Comm{job: j, id: engine.World, rank: cfg.Rank, members: make([]int, cfg.Size)}
	for i := range c.members {
		c.members[i] = i
	}
	if w.NoMulticast != "" && cfg.Size > 1 && !o.NoMulticast && cfg.Rank == 0 {
		cfg.Log.Warn("multicast does not work here: point-to-point algorithms are used instead, and the same bytes cross the network many times. \"allcast doctor\" tells what to do",
			"reason", w.NoMulticast)
	}
	if cfg.Key == nil && cfg.Size > 1 && !w.Loopback && cfg.Rank == 0 {
		cfg.Log.Warn("no ALLCAST_KEY is set: the job is open to whoever can reach it")
	}
	j.joined(cfg.Interface, inspectable, metrics)
	// The first barrier tells whether everybody got this far. What others do with their
	// communicator as soon as they have it must not fail it.
	err = c.meet(ctx)
	if err == nil && w.Calibrate {
		if err = c.calibrate(ctx); err == nil {
			err = c.meet(ctx)
		}
	}
	if err != nil {
		j.server.Close()
		_ = w.Close()
		return nil, err
	}
	return c, nil
}

// meet waits for all ranks, apart from what they do on communicators.
func (c *Comm) meet(ctx context.Context) error {
	r, err := c.job.Start(engine.Lifecycle, engine.Call{Kind: wire.Barrier, Algo: barrierAlgo})
	if err != nil {
		return exportError(err, c.members)
	}
	return (&Request{r, c}).Wait(ctx)
}

// Rank is our rank in this communicator.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return len(c.members) }

// WorldRank returns the world rank of a rank of c: its rank in the communicator that Join returned.
// Stats, logs, metrics and "allcast inspect" name ranks by it.
func (c *Comm) WorldRank(rank int) int { return c.members[rank] }

// Multicast reports whether the network's multicast works, and if not, why.
func (c *Comm) Multicast() (works bool, reason string) {
	return c.job.NoMulticast == "", c.job.NoMulticast
}

// Datapath is who puts received data in place, on this rank.
type Datapath struct {
	Name   string // "host": this process; "bpf": the kernel
	Hook   string // where the kernel looks at packets
	Reason string // why it is this process although the kernel was asked for (Options.Datapath)
}

func (d Datapath) String() string {
	switch {
	case d.Hook != "":
		return d.Name + " (" + d.Hook + ")"
	case d.Reason != "":
		return d.Name + " (" + d.Reason + ")"
	}
	return d.Name
}

// Datapath says who puts received data in place.
func (c *Comm) Datapath() Datapath {
	return Datapath{Name: c.job.Datapath, Hook: c.job.Hook, Reason: c.job.NoBPF}
}

// Fabric is the network in use: "ip" or "verbs".
func (c *Comm) Fabric() string { return c.job.Fabric }

// Secure reports whether what ranks send to each other is sealed (Options.Secure).
func (c *Comm) Secure() bool { return c.job.Secure }

// Integrity reports whether it is checked for accidents (Options.Integrity).
func (c *Comm) Integrity() bool { return c.job.Integrity }

// Abort ends all operations of this communicator, on all its ranks, with an
// error that matches ErrAborted and names this rank. Afterwards only Shrink and Close are of use.
func (c *Comm) Abort() error {
	if c == nil {
		return invalid("a nil communicator")
	}
	if c.closed.Load() {
		return exportError(engine.ErrClosed, nil)
	}
	return exportError(c.job.Abort(c.id), c.members)
}

// Close ends the use of a communicator on this rank. Operations of it that are under
// way go on, and its memory is free when they have ended. All other methods return an
// error that matches ErrClosed from now on.
//
// Closing the one that Join returned leaves the job, and with it all others: it waits
// for the other ranks to close it too, for Options.Timeout at most, so that nobody
// leaves while others still need it. Ranks that were lost are not waited for. Operations
// that have not ended by then fail.
func (c *Comm) Close() error {
	if c == nil || c.closed.Swap(true) {
		return nil
	}
	if c.id != engine.World {
		err := c.job.RemoveComm(c.id)
		if errors.Is(err, engine.ErrClosed) {
			return nil // the job was left, and with it this one
		}
		return exportError(err, c.members)
	}
	c.job.Leave(c.job.timeout, barrierAlgo)
	err := c.job.Close()
	c.job.server.Close()
	c.job.log.Info("left the job")
	return err
}
