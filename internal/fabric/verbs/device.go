//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	linkInfiniBand = C.IBV_LINK_LAYER_INFINIBAND
	linkEthernet   = C.IBV_LINK_LAYER_ETHERNET
)

// A Device is an open port of a device.
type Device struct {
	name   string
	port   int
	ctx    *C.struct_ibv_context
	pd     *C.struct_ibv_pd
	attr   C.struct_ac_port
	gid    C.struct_ac_gid
	mem    memory
	refs   atomic.Int32
	log    *slog.Logger
	events *async    // nil: events are ignored
	once   sync.Once // of Close
}

// Info describes a port, for people.
type Info struct {
	Name  string // device:port
	Link  string // InfiniBand or RoCE
	State string
	MTU   int
	GID   netip.Addr // address that Open would use
	Net   string     // network interface
	Err   error      // reason why Open would fail
}

var portStates = [...]string{"unknown", "down", "initialising", "armed", "active", "active, deferred"}

func stateName(s C.uint32_t) string {
	if int(s) < len(portStates) {
		return portStates[s]
	}
	return fmt.Sprintf("state %d", s)
}

// deviceList is all devices by name. They are valid until free.
type deviceList struct {
	byName map[string]*C.struct_ibv_device
	list   **C.struct_ibv_device
}

func devices() (*deviceList, error) {
	var n C.int
	list, err := C.ac_devices(&n)
	if list == nil {
		return nil, fmt.Errorf("%w: the kernel does not list any: %w; load the driver (ib_uverbs and the "+
			"card's, or rdma_rxe)", ErrNoDevice, err)
	}
	l := &deviceList{map[string]*C.struct_ibv_device{}, list}
	for _, d := range unsafe.Slice(list, int(n)) {
		l.byName[C.GoString(C.ibv_get_device_name(d))] = d
	}
	return l, nil
}

func (l *deviceList) free() { C.ibv_free_device_list(l.list) }

func (l *deviceList) names() []string { return slices.Sorted(maps.Keys(l.byName)) }

// ports opens every port of every device, as openPort does.
func (l *deviceList) ports(yield func(*Device, error) bool) {
	for _, name := range l.names() {
		ports := 1
		for port := 1; port <= ports; port++ {
			d, err := l.openPort(name, port)
			if d != nil {
				ports = int(d.attr.ports)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// List lists the ports of all devices, with their problems.
func List() (infos []Info, err error) {
	all, err := devices()
	if err != nil {
		return nil, err
	}
	defer all.free()
	for d, err := range all.ports {
		i := Info{Name: "port", Err: err} // the error names the port
		if d != nil {
			i = d.info(err)
			d.release()
		}
		infos = append(infos, i)
	}
	return infos, nil
}

// Open opens a port: "device:port", "device" for its first one, or "" for the one of the
// network interface with that index or, if there is none, the first that is active. Events of the
// device go to log; nil: nowhere.
func Open(name string, ifindex int, log *slog.Logger) (*Device, error) {
	d, err := open(name, ifindex)
	if err != nil {
		return nil, err
	}
	if log != nil {
		d.log = log
	}
	if d.events, err = newAsync(d); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func open(name string, ifindex int) (*Device, error) {
	all, err := devices()
	if err != nil {
		return nil, err
	}
	defer all.free()
	if len(all.byName) == 0 {
		return nil, fmt.Errorf("%w on this machine: load its driver, or make one with \"rdma link add "+
			"rxe0 type rxe netdev INTERFACE\"", ErrNoDevice)
	}
	if name == "" {
		return all.pick(ifindex)
	}
	dev, num, hasPort := strings.Cut(name, ":")
	port := 1
	if hasPort {
		if port, err = strconv.Atoi(num); err != nil || port < 1 || port > 255 {
			return nil, fmt.Errorf("%w: %q: want NAME or NAME:PORT, ports count from 1", ErrPort, name)
		}
	}
	if all.byName[dev] == nil {
		return nil, fmt.Errorf("%w called %q: there are %s", ErrNoDevice, dev, strings.Join(all.names(), ", "))
	}
	d, err := all.openPort(dev, port)
	if d != nil && err != nil {
		d.release()
		return nil, err
	}
	return d, err
}

// pick opens the port of a network interface, or the first usable one.
func (l *deviceList) pick(ifindex int) (best *Device, err error) {
	var why []error
	for d, err := range l.ports {
		switch {
		case err != nil:
			why = append(why, err)
		case best == nil || int(d.gid.ifindex) == ifindex && int(best.gid.ifindex) != ifindex:
			best, d = d, best
		}
		if d != nil {
			d.release()
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w that can be used: %w", ErrNoDevice, errors.Join(why...))
	}
	return best, nil
}

// openPort opens a port. A port with an error is unusable; nil: it could not be opened.
func (l *deviceList) openPort(name string, port int) (*Device, error) {
	d := &Device{name: name, port: port, log: slog.New(slog.DiscardHandler)}
	d.refs.Store(1)
	var err error
	if d.ctx, err = C.ibv_open_device(l.byName[name]); d.ctx == nil {
		return nil, d.errno("open (is /dev/infiniband readable?)", err)
	}
	if rc := C.ac_query(d.ctx, C.int(port), &d.attr); rc != 0 {
		C.ibv_close_device(d.ctx)
		return nil, fmt.Errorf("%w: %w; does the device have a port %d?", ErrPort, d.failed("query port", int(rc)), port)
	}
	if d.pd, err = C.ibv_alloc_pd(d.ctx); d.pd == nil {
		C.ibv_close_device(d.ctx)
		return nil, d.errno("allocate a protection domain", err)
	}
	d.mem.dev, d.mem.blocks, d.mem.pin = d, map[uint64]*region{}, d.mem.register
	d.mem.dereg = func(r *region) { C.ibv_dereg_mr(r.mr) }
	return d, d.usable()
}

// gids reads the addresses of all ports.
func (d *Device) gids() ([]C.struct_ac_gid, error) {
	var table [256]C.struct_ac_gid
	n := C.ac_gids(d.ctx, &table[0], C.int(len(table)))
	if n < 0 {
		return nil, d.failed("read the GID table", int(n))
	}
	return table[:n], nil
}

// usable selects the address.
func (d *Device) usable() error {
	if d.attr.state != C.IBV_PORT_ACTIVE {
		return fmt.Errorf("%w: %v is %s: bring its network interface or cable up", ErrPort, d, stateName(d.attr.state))
	}
	table, err := d.gids()
	if err != nil {
		return err
	}
	for _, g := range table {
		if int(g.port) == d.port && (d.attr.link == linkInfiniBand && g._type == C.IBV_GID_TYPE_IB ||
			d.attr.link == linkEthernet && g._type == C.IBV_GID_TYPE_ROCE_V2 && goGID(g.raw).Is4In6()) {
			d.gid = g
			return nil
		}
	}
	if d.attr.link == linkEthernet {
		return fmt.Errorf("%w: %v has no GID of RoCE v2 with an IPv4 address: give its network interface one", ErrPort, d)
	}
	return fmt.Errorf("%w: %v has no GID", ErrPort, d)
}

// hasGID reports whether the port still has the selected address.
func (d *Device) hasGID() bool {
	table, err := d.gids()
	return err == nil && slices.ContainsFunc(table, func(g C.struct_ac_gid) bool {
		return g.port == d.gid.port && g.index == d.gid.index && g.raw == d.gid.raw
	})
}

func (d *Device) info(err error) Info {
	i := Info{Name: d.String(), Link: "InfiniBand", State: stateName(d.attr.state), MTU: d.MTU(), Err: err}
	if d.attr.link == linkEthernet {
		i.Link = "RoCE"
	}
	if err == nil {
		i.GID, i.Net = goGID(d.gid.raw), d.Interface()
	}
	return i
}

// String is device:port.
func (d *Device) String() string { return fmt.Sprintf("%s:%d", d.name, d.port) }

// MTU is the largest size of a datagram.
func (d *Device) MTU() int { return 128 << d.attr.mtu }

// Interface names the network interface, "" if there is none.
func (d *Device) Interface() string {
	ifi, err := net.InterfaceByIndex(int(d.gid.ifindex))
	if err != nil {
		return ""
	}
	return ifi.Name
}

// retain adds a user of the device.
func (d *Device) retain() { d.refs.Add(1) }

// release removes a user. The last one closes the device.
func (d *Device) release() {
	if d.refs.Add(-1) > 0 {
		return
	}
	if d.events != nil {
		d.events.stop()
	}
	d.mem.close()
	C.ibv_dealloc_pd(d.pd)
	C.ibv_close_device(d.ctx)
}

// Close removes the user that Open added.
func (d *Device) Close() { d.once.Do(d.release) }
