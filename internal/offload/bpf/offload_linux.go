package bpf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/place"
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
	cfg     Config
	room    int
	wakes   uint32 // chunks per wake-up of the process
	spec    *ebpf.CollectionSpec
	maps    map[string]*ebpf.Map
	ring    ring
	mapped  [][]byte    // memory of maps
	closers []io.Closer // programs and links
	wake    func()
	tables
	memory

	mu     sync.Mutex
	closed bool
	lost   uint64 // value when it was closed
	groups []group
	lines
}

// tables are the memory of maps that the programs share with this process.
type tables struct {
	placements []placement
	words      []place.Word
	blocks     []block
	counters   []atomic.Uint64
}

// lines says which lines of the tables placements use.
type lines struct {
	gen        uint32 // of the latest placement
	open       map[*placement]bool
	freeWords  spans
	freeBlocks spans
}

// ring is the positions in the ring buffer through which programs wake the process. Its contents do not matter.
type ring struct{ consumer, producer *atomic.Uint64 }

// group is a subgroup's multicast group and the address from which this process sends to it.
type group struct{ group, own netip.AddrPort }

var (
	_ fabric.Placer    = (*Offload)(nil)
	_ fabric.Allocator = (*Offload)(nil)
)

// New loads the programs and attaches the one for the hook.
func New(cfg Config) (*Offload, error) {
	if cfg.Chunk < 1 || cfg.Chunk > maxDatagram {
		return nil, fmt.Errorf("bpf: chunks of %d bytes: must be 1 to %d", cfg.Chunk, maxDatagram)
	}
	o := &Offload{
		cfg: cfg, room: room, wakes: every, maps: map[string]*ebpf.Map{}, memory: memory{ids: spans{{0, regions}}},
		lines: lines{open: map[*placement]bool{}, freeWords: spans{{0, words}}, freeBlocks: spans{{0, blocks}}},
	}
	if cfg.Hook == XDP {
		o.room, o.wakes = roomXDP, everyXDP
	}
	if err := o.start(); err != nil {
		_ = o.Close()
		return nil, explain(cfg.Hook, err)
	}
	return o, nil
}

func (o *Offload) start() (err error) {
	object := placeObject
	if o.cfg.Fault.any() {
		object = faultObject
	}
	if o.spec, err = loadSpec(object); err != nil {
		return err
	}
	if err := o.makeMaps(); err != nil {
		return err
	}
	// If the kernel rejects the sockets' program, New fails before sockets exist, and the caller can
	// still use the host datapath.
	p, err := o.load("filter", nil)
	if err != nil {
		return err
	}
	_ = p.Close()
	return o.attach()
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
	page, write := unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE
	if err := errors.Join(
		mapTable(o, "placements", &o.placements, placements), mapTable(o, "words", &o.words, words),
		mapTable(o, "blocks", &o.blocks, blocks), mapTable(o, "counters", &o.counters, counters),
		mapMemory(o, "events", &o.ring.consumer, 0, page, write),
		mapMemory(o, "events", &o.ring.producer, page, page, unix.PROT_READ),
	); err != nil {
		return err
	}
	o.counters[random].Store(o.cfg.Fault.Seed)
	return nil
}

// mapTable maps a table of n lines into this process.
func mapTable[T any](o *Offload, name string, table *[]T, n int) error {
	var first *T
	m, line := o.maps[name], int(unsafe.Sizeof(*first))
	if m == nil || m.ValueSize() != uint32(line) || m.MaxEntries() != uint32(n) {
		return fmt.Errorf("bpf: the compiled program has another layout of %s: run \"make bpf\"", name)
	}
	size := (n*line + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1)
	if err := mapMemory(o, name, &first, 0, size, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	*table = unsafe.Slice(first, n)
	return nil
}

// mapMemory maps memory of an eBPF map into this process until Close, and sets a pointer to where it begins.
func mapMemory[T any](o *Offload, name string, to **T, off, size, prot int) error {
	mem, err := unix.Mmap(o.maps[name].FD(), int64(off), size, prot, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("bpf: map %s: %w", name, err)
	}
	o.mapped = append(o.mapped, mem)
	*to = (*T)(unsafe.Pointer(unsafe.SliceData(mem)))
	return nil
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
	maps.Copy(set, constants)
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

// attach attaches the program of a hook other than sockfilter.
func (o *Offload) attach() error {
	if o.cfg.Hook == SockFilter {
		return nil
	}
	name, known := map[Hook]string{TCX: "ingress", XDP: "express"}[o.cfg.Hook]
	if !known {
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
	p, err := o.load("filter", map[string]any{
		"own_port": bits.ReverseBytes16(own.Port()), "own_addr": addr, "v6": own.Addr().Is6(), "exact": true,
		"group": uint32(sub), "second": o.cfg.Hook != SockFilter,
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
		o.ring.consumer.Store(o.ring.producer.Load()) // discards all events
		ready()
	})
	return err
}

// Wake implements fabric.Placer.
func (o *Offload) Wake() { o.wake() }

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
	o.mu.Unlock()
	for _, c := range slices.Backward(o.closers) {
		_ = c.Close()
	}
	o.freeStages()
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
