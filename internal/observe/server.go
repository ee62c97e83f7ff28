package observe

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/units"
)

// Path is the URL path of a server's State.
const Path = "/debug/allcast"

// A Source supplies a Server's data. Its methods return quickly, even if the node is stuck.
type Source interface {
	State(events int) State
	Metrics() Metrics
}

// A Server answers on any number of listeners.
type Server struct {
	http *http.Server
	wg   sync.WaitGroup
	open atomic.Int32
}

// maxConns limits the connections of a server, because any client that reaches the port can open
// them.
const maxConns = 64

// NewServer returns a server. It answers on the listeners passed to Serve.
func NewServer(src Source, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m := src.Metrics()
		_ = m.Write(w) // the client has gone
	})
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		events, err := strconv.Atoi(r.FormValue("events"))
		if err != nil {
			events = Size
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(src.State(events))
	})
	s := &Server{}
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ConnState: s.count,
	}
	return s
}

func (s *Server) count(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		inherit.Conn(c)
		if s.open.Add(1) > maxConns {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	}
}

// Serve answers on a listener until Close, which closes it.
func (s *Server) Serve(l net.Listener) {
	inherit.Conn(l)
	s.wg.Go(func() { _ = s.http.Serve(l) })
}

// Close ends all listeners and connections.
func (s *Server) Close() {
	_ = s.http.Close()
	s.wg.Wait()
}

// An Addr is the address for metrics; the zero value means none.
type Addr struct{ Network, Address string }

func (a Addr) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// ParseAddr parses HOST:PORT or unix:PATH. All ranks of a machine get the same text: ParseAddr adds
// the local rank to a port other than 0, and replaces {rank} and {local_rank} in a path.
func ParseAddr(spec string, rank, local int) (Addr, error) {
	if path, ok := strings.CutPrefix(spec, "unix:"); ok {
		path = strings.NewReplacer("{rank}", strconv.Itoa(rank), "{local_rank}", strconv.Itoa(local)).Replace(path)
		if path == "" || strings.ContainsAny(path, "{}") {
			return Addr{}, units.Refuse(spec, "want unix:/a/path, with {rank} or {local_rank} in it where ranks share a machine")
		}
		return Addr{"unix", path}, nil
	}
	host, port, err := net.SplitHostPort(spec)
	if err != nil {
		return Addr{}, units.Refuse(spec, "want HOST:PORT, :PORT or unix:PATH")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Addr{}, units.Refuse(spec, "port %q: want 0 to 65535", port)
	}
	if n != 0 {
		n += uint64(max(0, local))
	}
	if n > 65535 {
		return Addr{}, units.Refuse(spec, "port %s and local rank %d are more than 65535", port, local)
	}
	return Addr{"tcp", net.JoinHostPort(host, strconv.FormatUint(n, 10))}, nil
}

// Listen listens on an address.
func Listen(a Addr) (net.Listener, error) {
	if a.Network == "unix" {
		return listenUnix(a.Address)
	}
	return net.Listen(a.Network, a.Address)
}
