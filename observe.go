package allcast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
)

// WriteMetrics writes this process's metrics in Prometheus's text format, for programs with a server of
// their own; ALLCAST_METRICS starts a server. It does not wait for operations. Labels have world ranks.
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

// listenMetrics opens the metrics server's socket and stores its actual address. It returns nil if there
// is no server. Join calls it before the ranks meet, because a rank could not tell the others why it
// fails later.
func listenMetrics(at *observe.Addr) (net.Listener, error) {
	if *at == (observe.Addr{}) {
		return nil, nil //nolint:nilnil // no server is no error
	}
	l, err := observe.Listen(*at)
	if err != nil {
		return nil, optionError(fmt.Errorf("ALLCAST_METRICS: listen at %q: %w", *at, err))
	}
	at.Address = l.Addr().String()
	return l, nil
}

func closeListener(l net.Listener) {
	if l != nil {
		_ = l.Close()
	}
}

// observe logs the result of Join and starts to answer people's questions. A failure to do so does not
// fail Join.
func (j *job) observe(metrics net.Listener) {
	s, log := &j.Settings, j.log()
	why := "it is the way to rank 0"
	if s.Interface != "" {
		why = "it was asked for: " + s.Interface
	}
	log.Info("joined", "size", s.Size, "job", j.Job, "interface", j.Interface, "because", why, "address", j.Local,
		"multicast", j.NoMulticast == "", "reason", j.NoMulticast,
		"chunk", j.Caps().Chunk, "batch", j.Caps().Batch, "room", j.Caps().Room, "features", j.Features)
	j.server = observe.NewServer(j.World, log)
	if metrics != nil {
		log.Info("metrics are served", "address", metrics.Addr())
		j.server.Serve(metrics)
	}
	if !s.Inspect {
		return
	}
	l, err := observe.ListenLocal(j.Job, s.Rank)
	switch {
	case errors.Is(err, observe.ErrUnsafe):
		log.Warn("\"allcast inspect\" will not find this process", "err", err)
	case err != nil:
		log.Info("\"allcast inspect\" will not find this process", "err", err)
	default:
		j.server.Serve(l)
	}
}

// logChoice logs which algorithm a call runs with, and why.
func (c *Comm) logChoice(k *engine.Call, algo string, bytes int64) {
	if !c.job.log().Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	by := "the cost model"
	switch {
	case k.Algo != "" && k.Algo != settings.AlgorithmAuto:
		by = "the call"
	case c.job.Settings.Rules.For(k.Kind, bytes) != nil:
		by = "the tuning"
	}
	c.job.log().Debug("algorithm chosen", "op", k.Kind, "bytes", bytes, "ranks", c.Size(), "algo", algo, "by", by)
}
