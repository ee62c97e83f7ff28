package allcast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
	"github.com/allcast/allcast/internal/world"
)

// A Comm is a group of ranks that communicate. Its methods are safe for concurrent use, but all ranks must
// start the collectives on it in the same order. Send, Recv and Subset take no place in that order. The package
// documentation describes what happens when the context of an operation ends.
type Comm struct {
	job     *job
	id      uint32 // the same on all members, and unique in the job
	rank    int
	members []int // world ranks
	closed  atomic.Bool
	subsets subsets // calls of Subset on this communicator

	cancelled atomic.Pointer[RankError] // error of the first blocking call whose context ended
}

// job is the state that all communicators of a process share.
type job struct {
	*world.World
	splits   atomic.Uint32   // number of Splits and Shrinks that this process has started
	measured *calibration    // result of the benchmark of Join, nil without one
	server   *observe.Server // server for "allcast inspect" and metrics
}

// warnUnknown warns of misspelt variables once per process.
var warnUnknown sync.Once

func (j *job) log() *slog.Logger { return j.Settings.Logger }

// Join connects this process to the other ranks of the job and returns the communicator of all ranks. All
// ranks call it. It fails on all ranks if one is missing or has incompatible options.
func Join(ctx context.Context, o Options) (*Comm, error) {
	env, hooked := settings.Process, false
	if e := joinhook.From(ctx).Env; e != nil {
		env, hooked = e, true
	}
	s, err := o.resolve(env)
	if err != nil {
		return nil, err
	}
	if !hooked && s.LocalRank <= 0 { // the other ranks of this machine have the same variables
		warnUnknown.Do(func() {
			for _, w := range settings.UnknownVariables(os.Environ()) {
				s.Logger.Warn(w)
			}
		})
	}
	metrics, err := listenMetrics(&s.Metrics)
	if err != nil {
		return nil, err
	}
	w, err := world.Join(ctx, s)
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
		j.logWarnings()
	}
	j.observe(metrics)
	// This barrier shows that all ranks have joined. It runs on a communicator of its own, because a rank
	// that has passed it may use the world at once.
	err = c.lifecycleBarrier(ctx)
	if err == nil && w.Calibrate {
		if err = c.calibrate(ctx); err == nil {
			err = c.lifecycleBarrier(ctx)
		}
	}
	if err != nil {
		j.server.Close()
		_ = w.Close()
		return nil, err
	}
	return c, nil
}

// logWarnings logs problems that the user should fix.
func (j *job) logWarnings() {
	if j.NoMulticast != "" && !j.Settings.NoMulticast {
		j.log().Warn("multicast does not work here: point-to-point algorithms run instead and send the same bytes "+
			"several times over the network; run \"allcast doctor\" for advice", "reason", j.NoMulticast)
	}
	if a := j.Aggregation; a.Off == "" && a.Unusable != "" {
		j.log().Warn("aggregators cannot be used: reductions by inc run point to point, with the same result, until they "+
			"work", "reason", a.Unusable, "retry", time.Duration(inc.RetryAfter))
	}
	if j.Settings.Key == nil && !j.Loopback {
		j.log().Warn("ALLCAST_KEY is not set: any process that can reach this job can join it")
	}
}

// lifecycleBarrier waits for all ranks, independently of operations on the world.
func (c *Comm) lifecycleBarrier(ctx context.Context) error {
	r, err := c.job.Start(engine.Lifecycle, engine.Call{Kind: wire.Barrier, Algo: barrierAlgo})
	if err != nil {
		return exportError(err, c.members)
	}
	return (&Request{req: r, comm: c}).Wait(ctx)
}

// Rank returns the rank of this process in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.members) }

// WorldRank converts a rank of c to a world rank, which is a rank of the communicator that Join returned. It
// returns -1 if c has no such rank. Stats, logs, metrics and "allcast inspect" use world ranks.
func (c *Comm) WorldRank(rank int) int {
	if rank < 0 || rank >= len(c.members) {
		return -1
	}
	return c.members[rank]
}

// Multicast reports whether multicast works on the network, and the reason if it does not.
func (c *Comm) Multicast() (works bool, reason string) {
	return c.job.NoMulticast == "", c.job.NoMulticast
}

// Aggregation reports whether the job has aggregators (Options.Aggregators) that worked when the ranks joined, and the
// reason if not.
func (c *Comm) Aggregation() (works bool, reason string) {
	a := c.job.Aggregation
	return a.Usable(), cmp.Or(a.Off, a.Unusable)
}

// Datapath describes the code that places received data on this rank.
type Datapath struct {
	Name   string // "host" for this process, "bpf" for the kernel
	Hook   string // attachment point of the kernel's program, see Options.Hook
	Reason string // reason for using this process although Options.Datapath asks for the kernel
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

// Datapath describes the code that places received data on this rank.
func (c *Comm) Datapath() Datapath {
	return Datapath{Name: c.job.Datapath, Hook: c.job.Hook, Reason: c.job.NoBPF}
}

// Fabric returns the network in use: "ip" or "verbs".
func (c *Comm) Fabric() string { return c.job.Settings.Fabric }

// Secure reports whether the ranks encrypt their traffic (Options.Secure).
func (c *Comm) Secure() bool { return c.job.Settings.Secure }

// Integrity reports whether the ranks check for accidental changes of data (Options.Integrity).
func (c *Comm) Integrity() bool { return c.job.Settings.Integrity }

// Abort ends all operations on this communicator on all its ranks. Their errors match ErrAborted and name
// this rank. Afterwards only Shrink and Close are useful.
func (c *Comm) Abort() error {
	if c == nil {
		return invalid("a nil communicator")
	}
	if c.closed.Load() {
		return exportError(engine.ErrClosed, nil)
	}
	return exportError(c.job.Abort(c.id), c.members)
}

// Close ends the use of a communicator on this rank. Running operations continue, and the communicator's
// memory is freed after the last of them. Later operations on it return an error that matches ErrClosed.
// A started Send or Recv without a match ends only if the other rank still provides one. Call Abort before
// Close to end it.
//
// Closing the communicator that Join returned leaves the job and closes all other communicators. Close
// first waits until the other ranks close it too, because they may still need this rank. It waits for
// Options.Timeout at most, and not for lost ranks. Operations that are still running then fail.
func (c *Comm) Close() error {
	if c == nil || c.closed.Swap(true) {
		return nil
	}
	if c.id != engine.World {
		return c.remove()
	}
	return c.job.leave(c.job.Settings.Timeout)
}

// leaveGrace is the time that CloseWithin gives goodbyes after its limit. They take longer if another process hangs.
const leaveGrace = 250 * time.Millisecond

// CloseWithin is Close with another limit than Options.Timeout, for programs that are about to exit. If the limit
// passes, this rank says goodbye to ranks that have not closed the communicator. Data that it has sent still
// arrives, but it repairs no losses any more. Operations of other ranks that need this rank fail at once, with an
// error that names it and matches ErrClosed or ErrRankLost.
//
// CloseWithin returns soon after the limit in any case. Leaving then continues in the background.
func (c *Comm) CloseWithin(limit time.Duration) error {
	if c == nil || c.closed.Swap(true) {
		return nil
	}
	if c.id != engine.World {
		return c.remove()
	}
	left := make(chan error, 1)
	go func() { left <- c.job.leave(limit) }()
	late := time.NewTimer(limit + leaveGrace)
	defer late.Stop()
	select {
	case err := <-left:
		return err
	case <-late.C:
		return fmt.Errorf("allcast: leaving the job takes longer than %v", limit+leaveGrace)
	}
}

// remove ends the use of a communicator other than the one of Join.
func (c *Comm) remove() error {
	err := c.job.RemoveComm(c.id)
	if errors.Is(err, engine.ErrClosed) {
		return nil // leaving the job has closed this communicator
	}
	return exportError(err, c.members)
}

// leave leaves the job. It waits for other ranks until the limit.
func (j *job) leave(limit time.Duration) error {
	j.Leave(limit, barrierAlgo)
	err := j.Close()
	j.server.Close()
	j.log().Info("left the job")
	return err
}
