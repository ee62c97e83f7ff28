package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

// A Config describes a Server. Zero fields have defaults, except for the site key.
type Config struct {
	Listen    string // HOST:PORT of control connections, and of the data; the default is a free port of all addresses
	Parent    string // HOST:PORT of the parent; empty: this aggregator is at the top
	SiteKey   []byte
	Cores     int   // goroutines that receive, each with a socket; 1
	Buffer    int   // wanted bytes of a socket's receive buffer; 64 MiB
	Memory    int64 // limit of the slots of all jobs, in bytes; 1 GiB
	JobMemory int64 // limit of the slots of a job, in bytes; 256 MiB
	MaxJobs   int   // limit of jobs at a time; 64
	Comms     int   // limit of communicators with slots at a time, per job; 4
	Timing    Timing
	Logger    *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Listen == "" {
		c.Listen = ":0"
	}
	if c.Cores == 0 {
		c.Cores = 1
	}
	if c.Buffer == 0 {
		c.Buffer = 64 << 20
	}
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	if c.JobMemory == 0 {
		c.JobMemory = 256 << 20
	}
	if c.MaxJobs == 0 {
		c.MaxJobs = 64
	}
	if c.Comms == 0 {
		c.Comms = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Timing = c.Timing.withDefaults()
}

func (c *Config) check() error {
	if len(c.SiteKey) < MinKey {
		return fmt.Errorf("a site key of %d bytes: want at least %d", len(c.SiteKey), MinKey)
	}
	if c.Cores < 1 || c.Buffer < 1 || c.Memory < 1 || c.JobMemory < 1 || c.MaxJobs < 1 || c.Comms < 1 {
		return errors.New("a limit is below 1")
	}
	if c.Parent == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(c.Parent); err != nil || host == "" || port == "" || port == "0" {
		return fmt.Errorf("parent %q: want HOST:PORT", c.Parent)
	}
	return nil
}

// A Server is an aggregator: it adds up the contributions of many jobs.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lis     net.Listener
	sockets []*socket
	started time.Time
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	table   atomic.Pointer[map[uint32]*job] // a copy of jobs for the data path
	data    dataCounters
	conns   connCounters
	limits  connLimits
	full    sync.Once     // this process has run out of something
	large   chan struct{} // an element per large message that is read

	mu       sync.Mutex
	closed   bool
	jobs     map[uint32]*job
	pending  []net.Conn // connections that have not proved the site key, oldest first
	open     map[net.Conn]bool
	memory   int64    // of all jobs, at most
	notes    []note   // for the log, after mu is unlocked
	refusal  string   // last one in the log
	warnings warnings // that strangers caused
	past     JobStats // of jobs that have ended
	total    int64    // bytes of a receive buffer that windows may fill
	room     int64    // what the windows of all jobs have left of them
}

type connCounters struct {
	accepted, strangers, wrongKeys, wrongVersions, refused, attached, expired atomic.Uint64
}

// Listen starts a Server.
func Listen(cfg Config) (*Server, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	files, _ := oslimit.OpenFiles()
	s := &Server{
		cfg: cfg, log: cfg.Logger, started: time.Now(), jobs: map[uint32]*job{}, open: map[net.Conn]bool{},
		limits: newConnLimits(files), large: make(chan struct{}, maxParallel),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.publish()
	if err := s.bind(); err != nil {
		s.closeSockets()
		return nil, err
	}
	s.wg.Go(s.accept)
	for _, sock := range s.sockets {
		s.wg.Go(func() { s.receive(sock) })
	}
	return s, nil
}

// bind opens the listener, and sockets with the same port.
func (s *Server) bind() error {
	// The free port of a listener may be taken for UDP. A given port is tried once.
	_, port, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen %q: want HOST:PORT or :PORT", s.cfg.Listen)
	}
	attempts := 1
	if port == "0" || port == "" {
		attempts = 16
	}
	for range attempts {
		if err = s.bindOnce(); err == nil {
			return nil
		}
		s.closeSockets()
	}
	return err
}

func (s *Server) bindOnce() (err error) {
	if s.lis, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return err
	}
	inherit.Conn(s.lis)
	local := plain(s.lis.Addr().(*net.TCPAddr).AddrPort())
	if host, _, _ := net.SplitHostPort(s.cfg.Listen); host == "" {
		local = netip.AddrPortFrom(netip.Addr{}, local.Port()) // both versions
	}
	for range s.cfg.Cores {
		sock, err := openSocket(local, socketOptions{
			buffer: s.cfg.Buffer, send: sendBuffer, shared: s.cfg.Cores > 1,
			warn: func(err error) { s.later(noTrains, "error", err) },
		})
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, sock)
	}
	// The sender of a train decides which socket receives it, so all may go to the same one.
	s.total = int64(ip.UsableBuffer(s.sockets[0].buffer))
	s.room = s.total
	return nil
}

func (s *Server) closeSockets() {
	if s.lis != nil {
		_ = s.lis.Close()
	}
	for _, sock := range s.sockets {
		sock.close()
	}
	s.sockets = nil
}

// Addr returns the address of control connections.
func (s *Server) Addr() netip.AddrPort { return plain(s.lis.Addr().(*net.TCPAddr).AddrPort()) }

// Buffer returns the size of the receive buffer that the system granted, in its own count.
func (s *Server) Buffer() int { return s.sockets[0].buffer }

// publish gives the data path a new copy of the jobs. The caller holds mu, or is the only user.
func (s *Server) publish() {
	t := maps.Clone(s.jobs)
	s.table.Store(&t)
}

// Close ends all connections and waits for all goroutines.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, j := range s.jobs {
		j.stopIdle()
	}
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.cancel()
	_ = s.lis.Close()
	for _, sock := range s.sockets {
		sock.close()
	}
	s.wg.Wait()
	return nil
}
