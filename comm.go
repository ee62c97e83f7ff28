package allcast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
	"github.com/allcast/allcast/internal/world"
)

// A Comm is a group of ranks that communicate. Several goroutines may call its methods, but all ranks
// must start the operations on it in the same order.
//
// A blocking operation whose context ends before it has completed aborts the communicator: all
// operations on it that have not completed fail, on all ranks, and only Shrink and Close are of use
// afterwards. The call returns once nothing can touch its buffers any more, with an error that
// matches the context's and ErrAborted. Later operations on this rank fail at once with the same
// error. If the context had ended before the call, nothing begins. Request.Wait is different: its
// context ends the waiting only.
type Comm struct {
	job     *job
	id      uint32 // the same on all members, and unique in the job
	rank    int
	members []int // world ranks
	closed  atomic.Bool

	cancelled atomic.Pointer[RankError] // error of the first blocking call whose context ended
}

// job is the state that all communicators of a process share.
type job struct {
	*world.World
	splits   atomic.Uint32   // number of Splits and Shrinks that this process has begun
	measured *calibration    // nil if Join has not run the benchmark
	server   *observe.Server // answers "allcast inspect" and serves metrics
}

func (j *job) log() *slog.Logger { return j.Settings.Logger }

// Join meets the other ranks of the job and returns the communicator of all ranks. All ranks call it. It
// fails on all of them if one does not come, or has options that do not fit those of the others.
func Join(ctx context.Context, o Options) (*Comm, error) {
	s, err := o.resolve(settings.Process)
	if err != nil {
		return nil, err
	}
	metrics, err := listenMetrics(&s.Metrics)
	if err != nil {
		return nil, err
	}
	w, err := world.Join(ctx, s, joinhook.From(ctx).Of(s.Rank))
	if err != nil {
		closeListener(metrics)
		return nil, fmt.Errorf("allcast: join as rank %d of %d: %w", s.Rank, s.Size, err)
	}
	j := &job{World: w}
	c := &Comm{job: j, id: engine.World, rank: s.Rank, members: make([]int, s.Size)}
	for i := range c.members {
		c.members[i] = i
	}
	if s.Rank == 0 && s.Size > 1 {
		j.warn()
	}
	j.observe(metrics)
	// The first barrier shows whether all ranks have come this far. It has a communicator of its own,
	// because a rank that has passed it may use the world at once.
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

// warn logs what a user of the job should fix.
func (j *job) warn() {
	if j.NoMulticast != "" && !j.Settings.NoMulticast {
		j.log().Warn("multicast does not work here: point-to-point algorithms are used instead, and the same bytes cross "+
			"the network many times. \"allcast doctor\" tells what to do", "reason", j.NoMulticast)
	}
	if j.Settings.Key == nil && !j.Loopback {
		j.log().Warn("no ALLCAST_KEY is set: the job is open to whoever can reach it")
	}
}

// meet waits for all ranks, independently of their operations on communicators.
func (c *Comm) meet(ctx context.Context) error {
	r, err := c.job.Start(engine.Lifecycle, engine.Call{Kind: wire.Barrier, Algo: barrierAlgo})
	if err != nil {
		return exportError(err, c.members)
	}
	return (&Request{r, c}).Wait(ctx)
}

// Rank is this process's rank in the communicator.
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

// Datapath is the code that puts received data in place on this rank.
type Datapath struct {
	Name   string // "host" for this process, "bpf" for the kernel
	Hook   string // place where the kernel looks at packets
	Reason string // why it is this process although Options.Datapath asks for the kernel
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

// Datapath returns the code that puts received data in place.
func (c *Comm) Datapath() Datapath {
	return Datapath{Name: c.job.Datapath, Hook: c.job.Hook, Reason: c.job.NoBPF}
}

// Fabric is the network in use: "ip" or "verbs".
func (c *Comm) Fabric() string { return c.job.Settings.Fabric }

// Secure reports whether the ranks encrypt their traffic (Options.Secure).
func (c *Comm) Secure() bool { return c.job.Settings.Secure }

// Integrity reports whether the ranks check for data that changes by accident (Options.Integrity).
func (c *Comm) Integrity() bool { return c.job.Settings.Integrity }

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
	c.job.Leave(c.job.Settings.Timeout, barrierAlgo)
	err := c.job.Close()
	c.job.server.Close()
	c.job.log().Info("left the job")
	return err
}
