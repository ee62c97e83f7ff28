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

// WriteMetrics writes the metrics of this process in the Prometheus text format, for programs with their own
// server. ALLCAST_METRICS starts a server instead. WriteMetrics does not wait for operations. Labels contain
// world ranks.
func (c *Comm) WriteMetrics(w io.Writer) error {
	if c == nil {
		return invalid("a nil communicator")
	}
	m := c.job.Metrics()
	if err := m.Write(w); err != nil {
		return fmt.Errorf("allcast: write metrics: %w", err)
	}
	return nil
}

// listenMetrics opens the socket of the metrics server and stores its actual address. It returns nil if no
// server is configured. Join calls it before it connects to other ranks, because a later failure could not
// be explained to them.
func listenMetrics(at *observe.Addr) (net.Listener, error) {
	if *at == (observe.Addr{}) {
		return nil, nil //nolint:nilnil // having no server is not an error
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

// observe logs the result of Join and starts the server for metrics and "allcast inspect". Join succeeds
// even if the server does not start.
func (j *job) observe(metrics net.Listener) {
	s, log := &j.Settings, j.log()
	why := "route to rank 0"
	if s.Interface != "" {
		why = "requested: " + s.Interface
	}
	log.Info("joined", "size", s.Size, "job", j.Job, "interface", j.Interface, "because", why, "address", j.Local,
		"multicast", j.NoMulticast == "", "reason", j.NoMulticast,
		"chunk", j.Caps().Chunk, "batch", j.Caps().Batch, "room", j.Caps().Room, "features", j.Features)
	j.server = observe.NewServer(j.World, log)
	if metrics != nil {
		log.Info("serving metrics", "address", metrics.Addr())
		j.server.Serve(metrics)
	}
	if !s.Inspect {
		return
	}
	l, err := observe.ListenLocal(j.Job, s.Rank)
	switch {
	case errors.Is(err, observe.ErrUnsafe):
		log.Warn("\"allcast inspect\" cannot find this process", "err", err)
	case err != nil:
		log.Info("\"allcast inspect\" cannot find this process", "err", err)
	default:
		j.server.Serve(l)
	}
}

// logChoice logs how a call runs and the reason for it.
func (c *Comm) logChoice(k *engine.Call, how choice, bytes int64) {
	if !c.job.log().Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	by := "the cost model"
	if c.job.measured.of(k.Kind, c.Size()) != nil {
		by = "the benchmark of Join"
	}
	switch {
	case k.Algo != "" && k.Algo != settings.AlgorithmAuto:
		by = "the call"
	case c.job.Settings.Rules.For(k.Kind, bytes) != nil:
		by = "the tuning"
	}
	c.job.log().Debug("algorithm chosen", "op", k.Kind, "bytes", bytes, "ranks", c.Size(), "algo", how.algo,
		"chains", how.chains, "by", by)
}
