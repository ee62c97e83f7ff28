package bpf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// The number of chunks that may be in flight, and the number after which the program wakes the
// process, a power of two. No chunk waits in a socket's queue: the thread that delivers a packet
// to the network stack also runs the program, which takes less time than sending. Room can
// therefore be large. Chunks that a preempted thread drops are fetched, which is cheaper than
// frequent wake-ups for credit. But xdp sees single packets, and a driver's ring holds as few
// as 256 of them.
const (
	room      = 8192
	every     = 2048
	roomLong  = 1024 // for chunks of several packets
	everyLong = 256
	roomXDP   = 192
	everyXDP  = 64
)

// Offload implements fabric.Placer, and fabric.Allocator for the memory into which it places chunks.
type Offload struct {
	cfg   Config
	room  int
	wakes uint32 // chunks per wake-up of the process
	spec  *ebpf.CollectionSpec
	maps  map[string]*ebpf.Map

	regions    *ebpf.Map
	placements []placement
	words      []word
	blocks     []block
	counters   []atomic.Uint64
	ring       ring
	mapped     [][]byte
	closers    []io.Closer // programs and links

	using sync.RWMutex // held for reading while regions are in use, so that Close waits

	wake func()
	once sync.Once // guards Complain

	mu         sync.Mutex
	closed     bool
	lost       uint64 // value when it was closed
	gen        uint32
	open       map[*placement]bool
	freeWords  spans
	freeBlocks spans
	ids        spans
	groups     []group
	given      []*region
	stages     []*region
}

// group is a subgroup's multicast group and the address from which this process sends to it.
type group struct{ group, own netip.AddrPort }

var (
	_ fabric.Placer    = (*Offload)(nil)
	_ fabric.Allocator = (*Offload)(nil)
)

// New loads the programs and attaches the one for the hook.
func New(cfg Config) (o *Offload, err error) {
	o = &Offload{
		cfg: cfg, maps: map[string]*ebpf.Map{}, open: map[*placement]bool{}, room: room, wakes: every,
		freeWords: spans{{0, words}}, freeBlocks: spans{{0, blocks}}, ids: spans{{0, regions}},
	}
	if cfg.Chunk < 1 || cfg.Chunk > maxDatagram {
		return nil, fmt.Errorf("bpf: chunks of %d bytes: must be 1 to %d", cfg.Chunk, maxDatagram)
	}
	if cfg.Hook == XDP {
		o.room, o.wakes = roomXDP, everyXDP
	}
	defer func() {
		if err != nil {
			_ = o.Close()
			o, err = nil, explain(cfg.Hook, err)
		}
	}()
	load := loadPlace
	if cfg.Fault.any() {
		load = loadFault
	}
	if o.spec, err = load(); err != nil {
		return o, err
	}
	if err = o.makeMaps(); err != nil {
		return o, err
	}
	if o.ring, err = openRing(o.maps["events"]); err != nil {
		return o, err
	}
	if err = o.try(); err != nil {
		return o, err
	}
	return o, o.attach()
}

// try loads the sockets' program once and discards it. If the kernel rejects the program, New
// fails before sockets exist, and the caller can still use the host datapath.
func (o *Offload) try() error {
	p, err := o.load("filter", nil)
	if err != nil {
		return err
	}
	return p.Close()
}

// makeMaps creates the maps that all programs share.
func (o *Offload) makeMaps() error {
	spec := o.spec.Copy()
	spec.Programs = nil
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	for name, m := range c.Maps {
		if name[0] == '.' { // each program has its own constants
			_ = m.Close()
		} else {
			o.maps[name] = m
		}
	}
	o.regions = o.maps["regions"]
	if o.placements, err = table[placement](o, "lanes", placements); err != nil {
		return err
	}
	if o.words, err = table[word](o, "words", words); err != nil {
		return err
	}
	if o.blocks, err = table[block](o, "blocks", blocks); err != nil {
		return err
	}
	if o.counters, err = table[atomic.Uint64](o, "counters", counters); err != nil {
		return err
	}
	o.counters[random].Store(o.cfg.Fault.Seed)
	return nil
}

// table maps the memory of an eBPF map into this process.
func table[T any](o *Offload, name string, n int) ([]T, error) {
	var line T
	m := o.maps[name]
	if m == nil || m.ValueSize() != uint32(unsafe.Sizeof(line)) || m.MaxEntries() != uint32(n) {
		return nil, fmt.Errorf("bpf: the compiled program has another layout of %s: run \"make bpf\"", name)
	}
	size := (n*int(unsafe.Sizeof(line)) + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1)
	mem, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("bpf: map %s: %w", name, err)
	}
	o.mapped = append(o.mapped, mem)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

// load loads one program with its constants.
func (o *Offload) load(name string, constants map[string]any) (*ebpf.Program, error) {
	spec := o.spec.Copy()
	p := spec.Programs[name]
	spec.Programs = map[string]*ebpf.ProgramSpec{name: p}
	set := map[string]any{"max_chunk": uint32(o.cfg.Chunk)}
	if f := o.cfg.Fault; f.any() {
		set["drop_below"], set["double_below"] = below(f.Drop), below(f.Drop+f.Dup)
		set["hold_below"] = below(f.Drop + f.Dup + f.Reorder)
		if name == "filter" && o.cfg.Hook != SockFilter && f.Drop+f.Reorder > 0 {
			set["drop_below"], set["hold_below"] = below(f.Drop/(f.Drop+f.Reorder)), below(1)
		}
	}
	for k, v := range constants {
		set[k] = v
	}
	for k, v := range set {
		if err := spec.Variables[k].Set(v); err != nil {
			return nil, fmt.Errorf("bpf: constant %s: %w", k, err)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: o.maps})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(name), nil
}

func below(share float64) uint32 { return uint32(min(share, 1) * math.MaxUint32) }

func b2u(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

// attach attaches the program of a hook other than sockfilter.
func (o *Offload) attach() error {
	var name string
	switch o.cfg.Hook {
	case SockFilter:
		return nil
	case TCX:
		name = "ingress"
	case XDP:
		name = "express"
	default:
		return fmt.Errorf("unknown hook %q", o.cfg.Hook)
	}
	p, err := o.load(name, nil)
	if err != nil {
		return err
	}
	o.closers = append(o.closers, p)
	var l link.Link
	if o.cfg.Hook == TCX {
		l, err = link.AttachTCX(link.TCXOptions{Interface: o.cfg.Interface.Index, Program: p, Attach: ebpf.AttachTCXIngress})
	} else {
		l, err = link.AttachXDP(link.XDPOptions{Interface: o.cfg.Interface.Index, Program: p, Flags: link.XDPDriverMode})
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", o.cfg.Interface.Name, err)
	}
	o.closers = append(o.closers, l)
	return nil
}

// Share tells the programs that other processes need our packets too.
func (o *Offload) Share() { o.counters[shared].Store(1) }

// Long sets the packet size of super-packets that are one chunk each; 0 means that every packet
// is a chunk.
func (o *Offload) Long(cut int) {
	o.counters[whole].Store(uint64(cut))
	if cut > 0 {
		o.room, o.wakes = roomLong, everyLong
	}
}

// Filter makes a socket the one of the next subgroup. It returns the counter of packets that do
// not reach the socket's queue.
func (o *Offload) Filter(fd int, to, own netip.AddrPort) (*atomic.Uint64, error) {
	o.mu.Lock()
	sub := len(o.groups)
	same := slices.ContainsFunc(o.groups, func(g group) bool { return g.group.Port() == to.Port() })
	o.groups = append(o.groups, group{to, own})
	o.mu.Unlock()
	switch {
	case sub >= maxGroups:
		return nil, fmt.Errorf("bpf: more than %d subgroups", maxGroups)
	case same: // programs tell subgroups apart by their ports
		return nil, fmt.Errorf("bpf: two subgroups with port %d: give each its own", to.Port())
	}
	o.counters[sub].Store(0) // a socket before Forget may have counted
	var addr [16]uint8
	copy(addr[:], own.Addr().AsSlice())
	port := own.Port()>>8 | own.Port()<<8
	p, err := o.load("filter", map[string]any{
		"own_port": port, "own_addr": addr, "v6": b2u(own.Addr().Is6()), "exact": uint8(1),
		"group": uint32(sub), "second": b2u(o.cfg.Hook != SockFilter),
	})
	if err != nil {
		return nil, explain(o.cfg.Hook, err)
	}
	defer func() { _ = p.Close() }() // the socket keeps it
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, p.FD()); err != nil {
		return nil, fmt.Errorf("bpf: attach to a socket: %w", err)
	}
	return &o.counters[sub], nil
}

// Forget forgets all sockets; Filter then starts again at subgroup 0.
func (o *Offload) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.groups = nil
}

// Room implements fabric.Placer.
func (o *Offload) Room() int { return o.room }

// Lost implements fabric.Placer.
func (o *Offload) Lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.lost
	}
	return o.counters[lost].Load()
}

// Watch implements fabric.Placer.
func (o *Offload) Watch(ready func()) (err error) {
	if o.cfg.Poller == nil {
		return errors.New("bpf: watch placements: no poller is configured")
	}
	o.wake, err = o.cfg.Poller.Watch(o.maps["events"].FD(), func() {
		o.ring.empty()
		ready()
	})
	return err
}

// Wake implements fabric.Placer.
func (o *Offload) Wake() { o.wake() }

func (o *Offload) complain(err error) {
	o.once.Do(func() {
		if o.cfg.Complain != nil {
			o.cfg.Complain(err)
		}
	})
}

// Close implements fabric.Placer. Memory from Alloc stays valid.
func (o *Offload) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	if o.counters != nil {
		o.lost = o.counters[lost].Load()
	}
	stages := o.stages
	o.stages = nil
	o.mu.Unlock()
	for i := len(o.closers) - 1; i >= 0; i-- {
		_ = o.closers[i].Close()
	}
	for _, r := range stages {
		_ = unix.Munmap(r.mem)
	}
	o.ring.close()
	for _, m := range o.mapped {
		_ = unix.Munmap(m)
	}
	o.using.Lock()
	defer o.using.Unlock()
	for _, m := range o.maps {
		_ = m.Close()
	}
	return nil
}
