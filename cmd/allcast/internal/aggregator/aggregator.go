// Package aggregator is "allcast aggregator": it adds up contributions next to a switch.
package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// Command is "allcast aggregator".
type Command struct {
	Listen      string     `default:":7900" placeholder:"ADDR"`
	SiteKeyFile string     `env:"ALLCAST_SITE_KEY_FILE" placeholder:"FILE"`
	Parent      string     `placeholder:"ADDR"`
	Cores       int        `default:"1" help:"Sockets and goroutines that receive (several: Linux)."`
	Memory      units.Size `default:"1G" help:"Limit of the memory of all jobs."`
	JobMemory   units.Size `default:"256M" help:"Limit of the memory of a job."`
	MaxJobs     int        `default:"64" help:"Limit of jobs at a time."`
	Buffer      units.Size `default:"64M"`
	Metrics     string     `placeholder:"ADDR" help:"Serve metrics at HOST:PORT or unix:PATH."`
}

// FlagHelp implements cli.FlagHelp.
func (Command) FlagHelp() map[string]string {
	return map[string]string{
		"listen": "HOST:PORT of control connections (TCP) and of the data (UDP), by default :7900. Ranks and other " +
			"aggregators must reach both.",
		"site-key-file": "File with the site key, 32 or more hex digits, the same for all aggregators and jobs of the " +
			"site; by default that of ALLCAST_SITE_KEY_FILE.",
		"buffer": "Wanted receive buffer of a socket. Without privileges, net.core.rmem_max limits it.",
		"parent": "HOST:PORT of the parent aggregator. The aggregator at the top has none.",
	}
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Adds up the contributions of ranks to reduce-scatter and allreduce with the algorithm inc, and passes one sum
on to its parent or, at the top, to the rank that owns it. It serves many jobs at once. Run it on a machine
next to a switch, and name the tree of aggregators in ALLCAST_AGGREGATORS of the job (see docs/aggregation.md).

It prints one line when it listens, and runs until SIGINT or SIGTERM. Its log goes to stderr. "allcast inspect"
shows its jobs. An aggregator sees the data of the jobs in the clear.

Examples:
  (umask 077; openssl rand -hex 32 >site.key)
  allcast aggregator --site-key-file site.key --listen 10.0.0.1:7900
  allcast aggregator --site-key-file site.key --listen 10.0.1.1:7900 --parent 10.0.0.1:7900`
}

// listening is the JSON of an aggregator that listens.
type listening struct {
	Event  string `json:"event"`
	Addr   string `json:"addr"`
	Parent string `json:"parent,omitempty"`
	Buffer int    `json:"receive_buffer"`
	Schema int    `json:"schema"`
}

// stopped is the JSON of an aggregator that ends.
type stopped struct {
	Event  string          `json:"event"`
	State  aggregate.State `json:"state"`
	Schema int             `json:"schema"`
}

const schema = 1

// Run serves until a signal.
func (c *Command) Run(e *cli.Env) error {
	cfg, metrics, err := c.config(e)
	if err != nil {
		return err
	}
	// Before it listens, so that a signal after the first line ends it in order.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := aggregate.Listen(cfg)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", c.Listen, reason(err))
	}
	defer func() { _ = s.Close() }()
	watch, err := c.observe(s, metrics, cfg.Logger)
	if err != nil {
		return err
	}
	defer watch.Close()
	addr := s.Addr().String()
	start := listening{"listening", addr, c.Parent, s.Buffer(), schema}
	if err := e.PrintResult(start, "listening on "+addr+"\n"); err != nil {
		return err
	}
	<-ctx.Done()
	if e.JSON {
		return e.PrintJSON(stopped{"stopped", s.State(), schema})
	}
	return nil
}

// config checks the flags.
func (c *Command) config(e *cli.Env) (cfg aggregate.Config, metrics observe.Addr, err error) {
	bad := func(format string, args ...any) (aggregate.Config, observe.Addr, error) {
		return cfg, metrics, cli.Usagef(format, args...)
	}
	switch {
	case c.SiteKeyFile == "":
		return bad("no site key: want --site-key-file FILE or ALLCAST_SITE_KEY_FILE; make one with: openssl rand -hex 32")
	case !isAddr(c.Listen, true):
		return bad("--listen %q: want HOST:PORT or :PORT", c.Listen)
	case c.Parent != "" && !isAddr(c.Parent, false):
		return bad("--parent %q: want HOST:PORT", c.Parent)
	case c.Cores < 1 || c.Cores > 256:
		return bad("--cores %d: want 1 to 256", c.Cores)
	case c.Cores > 1 && runtime.GOOS != "linux":
		return bad("--cores %d: several cores need Linux", c.Cores)
	case c.MaxJobs < 1:
		return bad("--max-jobs %d: want at least 1", c.MaxJobs)
	case c.Memory < 1<<20 || c.JobMemory < 1<<20:
		return bad("--memory %v, --job-memory %v: want at least 1M", c.Memory, c.JobMemory)
	case c.Buffer < 64<<10 || c.Buffer > 1<<30:
		return bad("--buffer %v: want 64K to 1G", c.Buffer)
	}
	if c.Metrics != "" {
		if metrics, err = observe.ParseAddr(c.Metrics, 0, 0); err != nil {
			return bad("--metrics %v", err)
		}
	}
	key, err := settings.KeyFile("--site-key-file", c.SiteKeyFile)
	if err != nil {
		return bad("%v", err)
	}
	return aggregate.Config{
		Listen: c.Listen, Parent: c.Parent, SiteKey: key, Cores: c.Cores, Buffer: int(c.Buffer), Memory: int64(c.Memory),
		JobMemory: int64(c.JobMemory), MaxJobs: c.MaxJobs, Logger: slog.New(slog.NewTextHandler(e.Stderr, nil)),
	}, metrics, nil
}

// isAddr reports whether text is HOST:PORT. The host may be empty and the port 0 for an address to listen on.
func isAddr(text string, listen bool) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || !units.IsDigits(port) {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil && (listen || host != "" && strings.Trim(port, "0") != "")
}

// reason shortens an error that repeats the address.
func reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// observe starts the servers for metrics and for "allcast inspect".
func (c *Command) observe(s *aggregate.Server, metrics observe.Addr, log *slog.Logger) (*observe.Server, error) {
	watch := observe.NewServer(&source{s: s, started: time.Now(), metrics: metrics}, log)
	if metrics != (observe.Addr{}) {
		l, err := observe.Listen(metrics)
		if err != nil {
			return nil, fmt.Errorf("cannot serve metrics at %v: %w", metrics, reason(err))
		}
		watch.Serve(l)
	}
	l, err := observe.ListenLocal(observe.AggregatorJob, 0)
	if err != nil {
		log.Info("\"allcast inspect\" cannot find this process", "err", err)
		return watch, nil
	}
	watch.Serve(l)
	return watch, nil
}

// source implements observe.Source.
type source struct {
	s       *aggregate.Server
	started time.Time
	metrics observe.Addr
}

func (s *source) State(int) observe.State {
	a := s.s.State()
	host, _ := os.Hostname() // only for people
	st := observe.State{
		Job: observe.AggregatorJob, Pid: os.Getpid(), Host: host, Program: filepath.Base(os.Args[0]),
		Version: allcast.Version, Time: time.Now(), Joined: time.Since(s.started).Seconds(), Answers: true, Aggregator: &a,
	}
	if s.metrics != (observe.Addr{}) {
		st.Metrics = s.metrics.String()
	}
	return st
}

func (s *source) Metrics() observe.Metrics {
	a := s.s.State()
	return observe.Metrics{Version: allcast.Version, Answers: true, Aggregator: &a}
}
