package allcast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/wire"
	"github.com/allcast/allcast/internal/world"
)

// WriteMetrics writes this process's metrics in Prometheus's text format, for programs
// with a server of their own; ALLCAST_METRICS serves them without one. It does not
// wait for operations. Ranks in labels are world ranks.
func (c *Comm) WriteMetrics(w io.Writer) error {
	if c == nil {
		return invalid("a nil communicator")
	}
	m := c.job.Metrics()
	if err := m.Write(w); err != nil {
		return fmt.Errorf("allcast: writing metrics: %w", err)
	}
	return nil
}

// localRanks are the variables that launchers number the ranks of a machine with.
var localRanks = []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}

// localRank is our number among the ranks of this machine, 0 where nobody says.
func localRank(lookup func(string) (string, bool)) (int, error) {
	for _, name := range localRanks {
		v, set := lookup(name)
		if !set || v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return 0, optionError("%s=%q: want a number from 0", name, v)
		}
		return n, nil
	}
	return 0, nil
}

// listenMetrics opens what ALLCAST_METRICS asks for; nil if it asks for nothing. That
// happens before the others are met, who could not be told why this rank is missing.
func listenMetrics(lookup func(string) (string, bool), cfg *world.Config) (net.Listener, error) {
	spec, _ := lookup("ALLCAST_METRICS")
	if spec == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	local, err := localRank(lookup)
	if err != nil {
		return nil, err
	}
	addr, err := observe.ParseAddr(spec, cfg.Rank, local)
	if err != nil {
		return nil, optionError("ALLCAST_METRICS=%w", err)
	}
	l, err := observe.Listen(addr)
	if err != nil {
		return nil, optionError("ALLCAST_METRICS=%q: %w", spec, err)
	}
	cfg.Metrics = observe.Addr{Network: addr.Network, Address: l.Addr().String()}.String()
	return l, nil
}

func closeListener(l net.Listener) {
	if l != nil {
		_ = l.Close()
	}
}

// inspectOn reads ALLCAST_INSPECT.
func inspectOn(lookup func(string) (string, bool)) (bool, error) {
	switch v, _ := lookup("ALLCAST_INSPECT"); v {
	case "", "on":
		return true, nil
	case "off":
		return false, nil
	default:
		return false, optionError("ALLCAST_INSPECT=%q: want on or off", v)
	}
}

// recorderDir reads ALLCAST_RECORDER: a failure is no time to find out that its
// directory cannot be used.
func recorderDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if err := observe.CheckDir(dir); err != nil {
		return "", optionError("ALLCAST_RECORDER=%q: %w", dir, err)
	}
	return dir, nil
}

// joined says how, and lets people ask this process what it is at. That nobody can is
// no reason not to join.
func (j *job) joined(asked string, inspectable bool, metrics net.Listener) {
	why := "it is the way to rank 0"
	if asked != "" {
		why = "it was asked for: " + asked
	}
	j.log.Info("joined", "size", j.Size, "job", j.Job, "interface", j.Interface, "because", why, "address", j.Local, "multicast", j.NoMulticast == "", "reason", j.NoMulticast,
		"chunk", j.Caps().Chunk, "batch", j.Caps().Batch, "room", j.Caps().Room, "features", j.Features)
	j.server = observe.NewServer(j.World, j.log)
	if metrics != nil {
		j.log.Info("metrics are served", "address", metrics.Addr())
		j.server.Serve(metrics)
	}
	if !inspectable {
		return
	}
	l, err := observe.ListenLocal(j.Job, j.Rank)
	switch {
	case errors.Is(err, observe.ErrUnsafe):
		j.log.Warn("\"allcast inspect\" will not find this process", "err", err)
	case err != nil:
		j.log.Info("\"allcast inspect\" will not find this process", "err", err)
	default:
		j.server.Serve(l)
	}
}

// logChoice says which algorithm a call runs with, and who chose it.
func (c *Comm) logChoice(k *engine.Call, algo string, bytes int64) {
	if !c.job.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.job.log.Debug("algorithm chosen", "op", k.Kind, "bytes", bytes, "ranks", c.Size(), "algo", algo, "by", c.chooser(k.Kind, k.Algo, bytes))
}

// chooser is what made choose choose as it did.
func (c *Comm) chooser(k wire.CallKind, asked string, bytes int64) string {
	if asked != "" && asked != auto {
		return "the call"
	}
	for _, r := range c.job.tuning {
		if r.kind == k && bytes >= r.from && bytes <= r.to {
			return "the tuning"
		}
	}
	return "the cost model"
}

// nameTrace calls the level below debug by its name.
func nameTrace(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey && a.Value.Any() == engine.LevelTrace {
		a.Value = slog.StringValue("TRACE")
	}
	return a
}
