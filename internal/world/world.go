// Package world brings the ranks of a job together: it finds out who they are,
// agrees on what their network can do, tries whether multicast really arrives, and
// starts the engine.
package world

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/rendezvous"
)

// Config says how to join. See the fields of allcast.Options.
type Config struct {
	Rank, Size  int
	Addr        string // of rank 0's rendezvous
	Key         []byte
	Secure      bool // seal everything; needs a key
	Integrity   bool // find what changed on the way or in memory
	Version     string
	Interface   string // name, ^name for any but it, "": the one towards rank 0
	Fabric      string // IP or Verbs; "": IP
	Device      string // of Verbs: "name:port", several separated by commas to be used in turn; "": found
	Timeout     time.Duration
	JoinTimeout time.Duration
	Deadline    time.Duration
	Subgroups   int
	Groups      []netip.AddrPort // to use, at least Subgroups; nil: derived from the job's secret
	Chunk       int              // 0: the largest that fits
	TTL, DSCP   int
	RecvBuffer  int
	Plain       bool   // no GSO and GRO
	NoMulticast string // set: do not try, for this reason
	PSNBits     int
	Pin         []int
	Fault       fault.Spec
	Datapath    string  // Host, BPF or Auto; "": Host
	Hook        string  // BPF: where the kernel looks at packets; "": a socket's filter
	RecvCores   []int   // processors that the kernel takes packets from our interface on; nil: where it likes
	Rack        string  // of this rank
	Rate        float64 // bits a second that reach a rank; 0: unknown
	Calibrate   bool    // we want to measure; a rank that does not is enough to leave it
	Log         *slog.Logger
	Listener    net.Listener // rank 0: where the others come to; nil: at Addr
	Recorder    string       // directory for what the flight recorder holds at a failure; "": none
	Metrics     string       // where metrics are served, for who inspects us

	Watch func(comm uint32, seq uint64, what string) // tests: see engine.Config
}

// A World is a job that was joined.
type World struct {
	*engine.Engine
	Rank, Size  int
	NoMulticast string // why there is none; "": there is
	Features    ip.Features
	Interface   string // or device
	Fabric      string
	Local       netip.Addr
	Racks       []string // by rank
	Loopback    bool     // all traffic stays on this machine
	Calibrate   bool     // all ranks want to
	Secure      bool     // what ranks send is sealed
	Integrity   bool     // and checked for accidents
	Job         string   // names the job, the same on all ranks
	Datapath    string   // who receives: Host or BPF
	Hook        string   // BPF: where
	NoBPF       string   // why it is Host although BPF was wanted

	once    sync.Once
	undoNIC func() // nil: nothing is to be undone
}

// Close ends the engine, and gives the interface back.
func (w *World) Close() error {
	err := w.Engine.Close()
	w.once.Do(func() {
		if w.undoNIC != nil {
			w.undoNIC()
		}
	})
	return err
}

// Join meets the others and starts the engine.
func Join(ctx context.Context, cfg Config) (*World, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Fabric == "" {
		cfg.Fabric = IP
	}
	if cfg.JoinTimeout == 0 {
		cfg.JoinTimeout = time.Minute
	}
	if cfg.Groups != nil && max(1, cfg.Subgroups) > len(cfg.Groups) {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close()
		}
		return nil, fmt.Errorf("%d subgroups, and only %d multicast groups given", max(1, cfg.Subgroups), len(cfg.Groups))
	}
	// It knows the timeout, and says who did not come; a context that ends at the
	// same time would only say that it is late.
	s, err := rendezvous.Join(ctx, rendezvous.Config{
		Rank: cfg.Rank, Size: cfg.Size, Addr: cfg.Addr, Key: cfg.Key, Timeout: cfg.JoinTimeout, Version: cfg.Version, Listener: cfg.Listener,
		Secure: cfg.Secure,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTimeout)
	defer cancel()
	j := &joining{Config: cfg, session: s}
	w, err := j.join(ctx)
	if err != nil {
		j.undo()
	}
	return w, err
}

type joining struct {
	Config
	session  *rendezvous.Session
	ifi      *net.Interface
	local    netip.Addr
	secret   []byte
	ln       net.Listener
	mc       fabric.Multicast
	features func() ip.Features // of mc; nil: the fabric is Verbs
	verbs    *verbsPort         // nil: the fabric is IP
	where    string             // interface or device, for people
	poller   *ip.Poller         // nil: Go's own does it, at a price
	off      *bpf.Offload       // nil: this process receives,
	noBPF    string             // for this reason, if it should not
	undoNIC  func()             // ends what RecvCores began
}

func (j *joining) undo() {
	if j.ln != nil {
		_ = j.ln.Close()
	}
	if j.mc != nil {
		_ = j.mc.Close()
	}
	j.dropOffload("")
	if j.undoNIC != nil {
		j.undoNIC()
	}
	if j.poller != nil {
		_ = j.poller.Close()
	}
	if j.verbs != nil {
		j.verbs.undo()
	}
}

// poll starts what serves the sockets. It is there before anything counts on it.
func (j *joining) poll() {
	var err error
	if j.poller, err = ip.NewPoller(); err != nil {
		j.poller = nil
		j.Log.Debug("no poller of our own", "err", err)
	}
}

func (j *joining) join(ctx context.Context) (*World, error) {
	long := 0
	if j.Fabric != Verbs {
		j.poll()
		long = ip.MaxLong - j.tag() - j.sum()
	}
	cards, err := exchange(ctx, j.session, j.open())
	if err != nil {
		return nil, err
	}
	addrs, chunk, packet, why, err := agree(cards, long)
	if err != nil {
		return nil, err
	}
	if why := j.tooLong(chunk, packet); why != "" && j.Datapath == Auto {
		j.Log.Info("this process receives, not the kernel", "why", why)
		j.dropOffload(why)
	}
	j.derive()
	j.share(addrs)
	if j.verbs != nil {
		if err := j.connectVerbs(ctx, cards); err != nil {
			return nil, err
		}
	}
	if j.Size > 1 {
		if why == "" {
			why, err = j.openMulticast(ctx, chunk, packet)
		}
		if err == nil && why == "" {
			why, err = j.probe(ctx)
		}
		if err != nil {
			return nil, err
		}
	} else if why == "" {
		why = "there is only one rank"
	}
	if why != "" {
		if j.mc != nil {
			_ = j.mc.Close()
			j.mc = nil
		}
		j.dropOffload(noMulticast)
	}
	return j.start(cards, addrs, why)
}

// start starts the engine on what was opened.
func (j *joining) start(cards []card, addrs []string, noMcast string) (*World, error) {
	w := &World{Rank: j.Rank, Size: j.Size, NoMulticast: noMcast, Interface: j.where, Fabric: j.Fabric, Local: j.local, Loopback: j.local.IsLoopback() && j.verbs == nil, Secure: j.Secure, Integrity: j.Integrity}
	w.Calibrate = true
	for _, c := range cards {
		w.Racks = append(w.Racks, c.Rack)
		w.Calibrate = w.Calibrate && c.Calibrate
	}
	ec := engine.Config{
		Rank: j.Rank, Size: j.Size, Secret: j.secret, Timeout: j.Timeout, Deadline: j.Deadline, PSNBits: j.PSNBits, Pin: j.Pin, Log: j.Log, Rate: j.Rate,
		Secure: j.Secure, Integrity: j.Integrity, Watch: j.Watch,
	}
	if j.verbs != nil {
		ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) { return j.verbs.reliable(h, j.Log), nil }
	} else {
		j.reliableIP(&ec, addrs)
	}
	j.observe(w, &ec)
	if j.mc != nil {
		if j.features != nil {
			w.Features = j.features()
		}
		ec.Multicast = j.mc
		if j.off == nil { // else the kernel injects the faults
			ec.Multicast = fault.Wrap(j.mc, j.Fault, j.Rank)
		}
	}
	w.Datapath, w.NoBPF, w.undoNIC = Host, j.noBPF, j.undoNIC
	if j.off != nil {
		w.Datapath, w.Hook = BPF, string(j.hook())
	}
	var err error
	if w.Engine, err = engine.New(ec); err != nil {
		return nil, err
	}
	return w, nil
}

// reliableIP lets the engine use TCP.
func (j *joining) reliableIP(ec *engine.Config, addrs []string) {
	ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) {
		t, err := ip.NewTCP(ip.TCPConfig{
			Rank: j.Rank, Size: j.Size, Listener: j.ln, Addrs: addrs, Secret: j.secret, Timeout: j.Timeout, Local: j.local, Log: j.Log, Poller: j.poller,
			Secure: j.Secure, Integrity: j.Integrity,
		}, h)
		if err != nil {
			return fabric.Reliable{}, err
		}
		return t.Reliable(), nil
	}
}

// derive makes the job's secret from its key and the session's seed.
func (j *joining) derive() {
	seed := j.session.Seed()
	mac := hmac.New(sha256.New, j.Key)
	mac.Write([]byte("allcast job "))
	mac.Write(seed[:])
	j.secret = mac.Sum(nil)
}

// number is one that all ranks know. Others may see it on the network, and learn
// nothing of the secret.
func (j *joining) number(what string) uint64 {
	mac := hmac.New(sha256.New, j.secret)
	mac.Write([]byte("allcast " + what))
	return binary.LittleEndian.Uint64(mac.Sum(nil))
}

// ErrInterface marks an interface that cannot be used.
var ErrInterface = errors.New("no usable network interface")
