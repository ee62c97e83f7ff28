// Package world brings the ranks of a job together: it finds out who they are,
// agrees on what their network can do, tries whether multicast really arrives, and
// starts the engine.
package world

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/offload/napi"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/seal"
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

// card is what a rank tells the others about itself. Everybody gets everybody's, so its
// names are short.
type card struct {
	Addr      string  `json:"a,omitempty"` // where it listens
	Fabric    string  `json:"f,omitempty"`
	Chunk     int     `json:"c,omitempty"` // largest that fits its interface
	Subgroups int     `json:"s,omitempty"`
	V6        bool    `json:"v,omitempty"`
	Error     string  `json:"e,omitempty"` // why it cannot go on
	NoMcast   string  `json:"m,omitempty"` // why it has no multicast
	Asked     int     `json:"k,omitempty"` // chunk that was asked for
	Groups    uint64  `json:"g,omitempty"` // a hash of those that were asked for
	Rack      string  `json:"r,omitempty"`
	Rate      float64 `json:"b,omitempty"`
	Calibrate bool    `json:"q,omitempty"`
	Integrity bool    `json:"i,omitempty"`

	Verbs json.RawMessage `json:"d,omitempty"` // how its queue pairs are reached
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
	session *rendezvous.Session
	ifi     *net.Interface
	local   netip.Addr
	secret  []byte
	ln      net.Listener
	mc      fabric.Multicast
	verbs   *verbsPort   // nil: the fabric is IP
	where   string       // interface or device, for people
	poller  *ip.Poller   // nil: Go's own does it, at a price
	off     *bpf.Offload // nil: this process receives,
	noBPF   string       // for this reason, if it should not
	undoNIC func()       // ends what RecvCores began
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
	var mine card
	mine.Calibrate = j.Calibrate
	mine.Asked, mine.Groups, mine.Rack, mine.Rate, mine.Integrity = j.Chunk, groupsHash(j.Groups), j.Rack, j.Rate, j.Integrity
	err := j.place()
	mine.Fabric = j.Fabric
	switch {
	case err != nil:
	case j.Fabric == Verbs:
		j.verbs, err = openVerbs(j)
	default:
		j.where = j.ifi.Name
		j.ln, err = ip.Listen(j.local)
	}
	if err == nil && len(j.RecvCores) > 0 {
		j.undoNIC, err = napi.Dedicate(j.ifi, j.RecvCores)
	}
	if err == nil {
		err = j.offload()
	}
	switch {
	case err != nil:
		mine.Error = err.Error()
	case j.verbs != nil:
		mine.Chunk, mine.Subgroups, mine.NoMcast = j.verbs.maxChunk(j.sum() > 0), max(1, j.Subgroups), j.NoMulticast
		mine.Verbs = j.verbs.card()
	default:
		mine.Addr, mine.V6 = j.ln.Addr().String(), j.local.Is6() && !j.local.Is4In6()
		mine.Chunk, mine.Subgroups, mine.NoMcast = max(0, ip.MaxPayload(j.ifi.MTU, mine.V6)-j.tag()-j.sum()), max(1, j.Subgroups), j.NoMulticast
	}
	cards, err := exchange(ctx, j.session, mine)
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
	w := &World{Rank: j.Rank, Size: j.Size, NoMulticast: why, Interface: j.where, Fabric: j.Fabric, Local: j.local, Loopback: j.local.IsLoopback() && j.verbs == nil, Secure: j.Secure, Integrity: j.Integrity}
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
		ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) { return j.verbs.reliable(h, j.Log) }
	} else {
		j.reliableIP(&ec, addrs)
	}
	j.observe(w, &ec)
	if j.mc != nil {
		if m, ok := j.mc.(*ip.Multicast); ok {
			w.Features = m.Features()
		}
		ec.Multicast = j.mc
		if j.off != nil {
			ec.Placer = j.off // which has the faults
		} else {
			ec.Multicast = fault.Wrap(j.mc, j.Fault, j.Rank)
		}
	}
	w.Datapath, w.NoBPF, w.undoNIC = Host, j.noBPF, j.undoNIC
	if j.off != nil {
		w.Datapath, w.Hook = BPF, string(j.hook())
	}
	if w.Engine, err = engine.New(ec); err != nil {
		return nil, err
	}
	return w, nil
}

// reliableIP lets the engine use TCP.
func (j *joining) reliableIP(ec *engine.Config, addrs []string) {
	ec.Reliable = func(h fabric.Handler) (fabric.Reliable, error) {
		return ip.NewTCP(ip.TCPConfig{
			Rank: j.Rank, Size: j.Size, Listener: j.ln, Addrs: addrs, Secret: j.secret, Timeout: j.Timeout, Local: j.local, Log: j.Log, Poller: j.poller,
			Secure: j.Secure, Integrity: j.Integrity,
		}, h)
	}
	if j.poller != nil {
		ec.Poller = j.poller
	}
}

// tag is what sealing adds to a chunk, sum what a checksum does: what is sealed needs none.
func (j *joining) tag() int {
	if j.Secure {
		return seal.TagSize
	}
	return 0
}

func (j *joining) sum() int {
	if j.Integrity && !j.Secure {
		return fabric.SumSize
	}
	return 0
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

// exchange gives everybody a card and gets everybody's.
func exchange[T any](ctx context.Context, s *rendezvous.Session, mine T) ([]T, error) {
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := s.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(blobs))
	for r, b := range blobs {
		if err := json.Unmarshal(b, &all[r]); err != nil {
			return nil, fmt.Errorf("rank %d sent a card that does not decode: %w", r, err)
		}
	}
	return all, nil
}

// agree finds what suits everybody; all ranks come to the same result. A chunk that was asked
// for may take several packets, up to long bytes, of which each has packet of them.
func agree(cards []card, long int) (addrs []string, chunk, packet int, noMcast string, err error) {
	chunk = cards[0].Chunk
	for r, c := range cards {
		switch {
		case c.Error != "":
			return nil, 0, 0, "", fmt.Errorf("rank %d cannot take part: %s", r, c.Error)
		case c.Fabric != cards[0].Fabric:
			return nil, 0, 0, "", fmt.Errorf("rank %d uses the fabric %s, rank 0 %s: use the same Options.Fabric or ALLCAST_FABRIC on all ranks", r, c.Fabric, cards[0].Fabric)
		case c.V6 != cards[0].V6:
			return nil, 0, 0, "", fmt.Errorf("rank %d uses another IP version than rank 0: set MASTER_ADDR or the interface so that all use the same", r)
		case c.Subgroups != cards[0].Subgroups || c.Asked != cards[0].Asked:
			return nil, 0, 0, "", fmt.Errorf("rank %d was started with other options than rank 0 (%d and %d subgroups, chunks of %d and %d bytes): use the same on all ranks",
				r, c.Subgroups, cards[0].Subgroups, c.Asked, cards[0].Asked)
		case c.Rate != cards[0].Rate:
			return nil, 0, 0, "", fmt.Errorf("rank %d was told another rate of the network than rank 0 (%g and %g bit/s): use the same on all ranks", r, c.Rate, cards[0].Rate)
		case c.Integrity != cards[0].Integrity:
			return nil, 0, 0, "", fmt.Errorf("rank %d was started %s integrity checks, rank 0 %s: use the same Options.Integrity or ALLCAST_INTEGRITY on all ranks",
				r, with(c.Integrity), with(cards[0].Integrity))
		case c.Groups != cards[0].Groups:
			return nil, 0, 0, "", fmt.Errorf("rank %d was given other multicast groups than rank 0: use the same ALLCAST_GROUPS on all ranks", r)
		case c.NoMcast != "" && noMcast == "":
			noMcast = c.NoMcast
		}
		chunk = min(chunk, c.Chunk)
		addrs = append(addrs, c.Addr)
	}
	packet = chunk
	long = max(long, chunk)
	if a := cards[0].Asked; a > long && len(cards) > 1 && noMcast == "" {
		return nil, 0, 0, "", fmt.Errorf("a chunk of %d bytes does not fit the network: at most %d do, %d in one packet", a, long, packet)
	} else if a > 0 {
		chunk = a
	}
	return addrs, chunk, packet, noMcast, nil
}

func with(on bool) string {
	if on {
		return "with"
	}
	return "without"
}

// groupsHash tells whether ranks were given the same groups; 0: none were given.
func groupsHash(groups []netip.AddrPort) uint64 {
	if len(groups) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, g := range groups {
		h.Write([]byte(g.String() + ","))
	}
	return h.Sum64() >> 11 // exact in JSON's numbers
}

// groups picks what to open. A network that forwards given groups only leaves no
// choice.
func (j *joining) groups(seed uint64) []netip.AddrPort {
	n := max(1, j.Subgroups)
	if j.Groups != nil {
		return j.Groups[:n]
	}
	return ip.GroupsFor(seed, n, j.local.Is6() && j.verbs == nil)
}

// openGroups opens the groups on the fabric.
func (j *joining) openGroups(groups []netip.AddrPort, chunk, packet int) (fabric.Multicast, error) {
	if j.verbs != nil {
		return j.verbs.multicast(j, groups, chunk)
	}
	cfg := ip.McastConfig{
		Interface: j.ifi, Local: j.local, Groups: groups,
		Chunk: chunk + j.tag(), Packet: packet + j.tag(), TTL: j.TTL, DSCP: j.DSCP, RecvBuffer: j.RecvBuffer, Plain: j.Plain, Sums: j.sum() > 0,
	}
	if j.off != nil {
		j.off.Forget() // those of the try before
		cfg.Filter = j.off.Filter
	}
	if why := j.tooLong(chunk, packet); why != "" {
		return nil, errors.New(why)
	}
	m, err := ip.OpenMulticast(cfg)
	if err != nil {
		return nil, err
	}
	if j.off != nil {
		j.off.Long(m.Cut())
	}
	return m, nil
}

// openMulticast opens the groups; where a port is taken on some machine, others
// are tried.
func (j *joining) openMulticast(ctx context.Context, chunk, packet int) (why string, err error) {
	seed := j.number("groups")
	tries := uint64(3)
	if j.Groups != nil {
		tries = 1
	}
	for try := range tries {
		var mine card
		var openErr error
		j.mc, openErr = j.openGroups(j.groups(seed+try), chunk, packet)
		if openErr != nil {
			j.mc, mine.NoMcast = nil, openErr.Error()
		}
		cards, err := exchange(ctx, j.session, mine)
		if err != nil {
			return "", err
		}
		var failed []string
		for r, c := range cards {
			if c.NoMcast != "" {
				failed = append(failed, fmt.Sprintf("rank %d: %s", r, c.NoMcast))
			}
		}
		if len(failed) == 0 {
			return "", nil
		}
		why = strings.Join(failed[:min(3, len(failed))], "; ")
		if j.mc != nil {
			_ = j.mc.Close()
			j.mc = nil
		}
	}
	return why, nil
}

// ErrInterface marks an interface that cannot be used.
var ErrInterface = errors.New("no usable network interface")
