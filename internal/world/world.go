// Package world brings the ranks of a job together. The ranks meet, agree on what their network can do,
// test whether multicast arrives, and start their engines.
//
// Ranks meet at the address of rank 0 or through a store (package rendezvous), agree on the largest chunk that all
// interfaces carry, open the multicast groups, and test with datagrams of full size whether each rank
// hears every other. If not, the job runs without multicast and says why. Leaving is a barrier on a
// communicator of its own, so a rank that leaves early can be told apart from one that made a different
// call.
package world

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/settings"
)

// A World is a job that this process has joined.
type World struct {
	*engine.Engine
	Settings    settings.Settings
	NoMulticast string // reason why multicast does not work; "" if it does
	Features    ip.Features
	Interface   string // interface or device in use
	Local       netip.Addr
	Racks       []string           // by rank
	Loopback    bool               // all traffic stays on this machine
	Calibrate   bool               // no rank has settings.NoCalibration
	Job         string             // name of the job, the same on all ranks
	Datapath    string             // in use: settings.Host or settings.BPF
	Hook        string             // of settings.BPF
	Meeting     rendezvous.Traffic // of meeting the other ranks
	NoBPF       string             // reason for settings.Host where the settings ask for the kernel
	Aggregation Aggregation

	restoreNIC func() // idempotent; nil if the interface was not changed
}

// Close stops the engine and restores the interface.
func (w *World) Close() error {
	err := w.Engine.Close()
	if w.restoreNIC != nil {
		w.restoreNIC()
	}
	return err
}

// Join meets the other ranks and starts the engine. s is a result of settings.Resolve. The context may carry
// hooks of package joinhook.
func Join(ctx context.Context, s settings.Settings) (*World, error) {
	cfg := rendezvous.Config{
		Job: s.Job, Meeting: s.Meeting, Protection: s.Protection, Liveness: s.Liveness,
		Logger: s.Logger, LateNames: settings.InKubernetes(settings.Process),
	}
	if s.Store != nil {
		var err error
		if cfg.Local, err = listenAddr(&s); err != nil {
			return nil, err
		}
	} else if s.Rank == 0 {
		cfg.Listener = joinhook.From(ctx).Listener
	}
	// The rendezvous has the timeout as well, and its error names the missing ranks. A context that ends
	// at the same time would hide that error, so the context gets its timeout later.
	session, err := rendezvous.Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	ctx, cancel := context.WithTimeout(ctx, s.JoinTimeout)
	defer cancel()
	j := &joining{Settings: s, session: session}
	w, err := j.join(ctx)
	if err != nil {
		j.undo()
	}
	return w, err
}

// joining is a Join under way.
type joining struct {
	settings.Settings
	session    *rendezvous.Session
	ifi        *net.Interface
	towards    netip.Addr // this rank's address on the way to the others
	local      netip.Addr
	secret     []byte
	ln         *net.TCPListener
	mc         fabric.Multicast
	minRoom    int                // smallest room of all ranks' receive queues
	features   func() ip.Features // of mc; nil on the verbs fabric
	verbs      verbsPort          // nil on the IP fabric
	where      string             // interface or device, for messages
	poller     *ip.Poller         // nil if only Go's slower poller is available
	off        *bpf.Offload       // nil if this process receives
	noBPF      string             // reason why off is nil although the settings ask for the kernel
	restoreNIC func()             // undoes the effect of ReceiveCores

	aggregation aggregation
}

// verbsPort is a port of a verbs device. Only builds with verbs have one.
type verbsPort interface {
	describe(sums bool) (maxChunk int, card json.RawMessage)
	// introduce gives the cards of all ranks to each. When it returns, every rank is ready to connect to any other.
	introduce(ctx context.Context, session *rendezvous.Session, cards []json.RawMessage) error
	multicast(j *joining, groups []netip.AddrPort, chunk int) (fabric.Multicast, error)
	// reliable hands the queue pairs over to the engine, which closes them.
	reliable(h fabric.Handler, log *slog.Logger) fabric.Reliable
	undo()
}

// undo releases the resources of a Join that failed.
func (j *joining) undo() {
	if j.ln != nil {
		_ = j.ln.Close()
	}
	j.closeMulticast()
	j.aggregation.undo()
	j.dropOffload("")
	if j.restoreNIC != nil {
		j.restoreNIC()
	}
	if j.poller != nil {
		_ = j.poller.Close()
	}
	if j.verbs != nil {
		j.verbs.undo()
	}
}

func (j *joining) closeMulticast() {
	if j.mc != nil {
		_ = j.mc.Close()
		j.mc = nil
	}
}

func (j *joining) join(ctx context.Context) (*World, error) {
	long := 0
	if j.Fabric != settings.Verbs {
		var err error
		if j.poller, err = ip.NewPoller(); err != nil {
			j.poller = nil
			j.Logger.Debug("no epoll poller; using the runtime's", "err", err)
		}
		long = ip.MaxLong - j.tag() - j.sum()
	}
	if err := j.findHosts(ctx); err != nil {
		return nil, err
	}
	t, err := fold(ctx, j.session, j.open(), func(cards []card) (terms, error) { return agree(cards, long) })
	if err != nil {
		return nil, err
	}
	addrs, err := t.Addrs.unpack(j.Size)
	if err != nil {
		return nil, err
	}
	chunk, packet, why := t.Chunk, t.Packet, t.NoMcast
	if why := j.tooLong(chunk, packet); why != "" && j.Datapath == settings.Auto {
		j.Logger.Info(hostReceives, "why", why)
		j.dropOffload(why)
	}
	seed := j.session.Seed()
	j.secret = mac(j.Key, "allcast job "+string(seed[:]))
	j.share(addrs)
	if j.verbs != nil {
		if err := j.verbs.introduce(ctx, j.session, t.Verbs); err != nil {
			return nil, err
		}
	}
	switch {
	case why != "":
	case j.Size == 1:
		why = "there is only one rank"
	default:
		if why, err = j.connectMulticast(ctx, chunk, packet, t.Streams); err != nil {
			return nil, err
		}
	}
	if why != "" {
		j.closeMulticast()
		j.dropOffload(noMulticast)
	}
	if err := j.connectAggregators(ctx, t.Inc); err != nil {
		return nil, err
	}
	return j.start(ctx, t, addrs, why)
}

// start starts the engine on the sockets and devices that are open.
func (j *joining) start(ctx context.Context, t terms, addrs []string, noMcast string) (*World, error) {
	racks, err := t.Racks.unpack(j.Size)
	if err != nil {
		return nil, err
	}
	sharing, err := t.Sharing.unpack(j.Size)
	if err != nil {
		return nil, err
	}
	ranks, err := strconv.Atoi(sharing[j.Rank])
	if err != nil {
		return nil, fmt.Errorf("the number of ranks on this machine: %w", err)
	}
	w := &World{
		Settings: j.Settings, NoMulticast: noMcast, Interface: j.where, Local: j.local,
		Loopback: j.local.IsLoopback() && j.verbs == nil, Calibrate: t.Calibrate, Racks: racks,
		Datapath: settings.Host, NoBPF: j.noBPF, restoreNIC: j.restoreNIC, Meeting: j.session.Traffic(),
		Aggregation: j.aggregation.Aggregation,
	}
	ec := engine.Config{
		Config:     observer.Config{Job: j.Job, Logger: j.Logger, JoinSent: w.Meeting.Sent, JoinReceived: w.Meeting.Received},
		Protection: j.Protection, Transfer: j.Transfer, Liveness: j.Liveness, Secret: j.secret,
		Cores: cores(ranks), Reduction: j.reduction(),
	}
	if watch := joinhook.From(ctx).Watch; watch != nil {
		ec.Watch = func(comm uint32, seq uint64, phase string) { watch(j.Rank, comm, seq, phase) }
	}
	if j.verbs != nil {
		ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) { return j.verbs.reliable(h, j.Logger), nil }
	} else {
		j.reliableIP(&ec, addrs)
	}
	j.observe(w, &ec)
	if j.mc != nil {
		if j.features != nil {
			w.Features = j.features()
		}
		ec.Multicast, ec.MinRoom = j.mc, j.minRoom
		if j.off != nil { // the kernel injects the faults itself
			w.Datapath, w.Hook = settings.BPF, j.Hook
		} else {
			ec.Multicast = fault.Wrap(j.mc, j.Fault, j.Rank)
		}
	}
	if w.Engine, err = engine.New(ec); err != nil {
		return nil, err
	}
	j.aggregation.relay.attach(w.SetAggregation)
	return w, nil
}

// reliableIP lets the engine use TCP.
func (j *joining) reliableIP(ec *engine.Config, addrs []string) {
	ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) {
		t, err := ip.NewTCP(ip.TCPConfig{
			Rank: j.Rank, Size: j.Size, Listener: j.ln, Addrs: addrs, Secret: j.secret, Timeout: j.Timeout, Local: j.local,
			Logger: j.Logger, Poller: j.poller, Secure: j.Secure, Integrity: j.Integrity,
		}, h)
		if err != nil {
			return fabric.Reliable{}, err
		}
		return t.Reliable(), nil
	}
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// number returns a number for a purpose, the same on all ranks. Whoever sees it on the network learns
// nothing about the secret.
func (j *joining) number(what string) uint64 {
	return binary.LittleEndian.Uint64(mac(j.secret, "allcast "+what))
}
