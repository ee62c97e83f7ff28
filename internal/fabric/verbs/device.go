//go:build verbs

package verbs

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Link layers.
const (
	linkInfiniBand = C.IBV_LINK_LAYER_INFINIBAND
	linkEthernet   = C.IBV_LINK_LAYER_ETHERNET
)

const (
	portActive = C.IBV_PORT_ACTIVE
	gidRoCEv2  = C.IBV_GID_TYPE_ROCE_V2
	gidIB      = C.IBV_GID_TYPE_IB
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
	Name   string // device:port
	Link   string // InfiniBand or RoCE
	Active bool
	State  string
	MTU    int
	GID    netip.Addr // address that Open would use
	Net    string     // network interface
	Err    error      // reason why Open would fail
}

var portStates = [...]string{"unknown", "down", "initialising", "armed", "active", "active, deferred"}

func stateName(s C.uint32_t) string {
	if int(s) < len(portStates) {
		return portStates[s]
	}
	return fmt.Sprintf("state %d", s)
}

// names lists the devices.
func names() ([]string, error) {
	var n C.int
	list, err := C.ac_devices(&n)
	if list == nil {
		return nil, fmt.Errorf("%w: the kernel does not list any: %w; load the driver (ib_uverbs and the "+
			"card's, or rdma_rxe)", ErrNoDevice, err)
	}
	defer C.ibv_free_device_list(list)
	var all []string
	for _, d := range unsafe.Slice(list, int(n)) {
		all = append(all, C.GoString(C.ibv_get_device_name(d)))
	}
	slices.Sort(all)
	return all, nil
}

// List lists the ports of all devices, with their problems.
func List() ([]Info, error) {
	all, err := names()
	if err != nil {
		return nil, err
	}
	var infos []Info
	each(all, func(d *Device, err error) {
		if d == nil {
			infos = append(infos, Info{Name: "port", Err: err}) // the error names the port
			return
		}
		i := d.info()
		i.Err = err
		infos = append(infos, i)
		d.release()
	})
	return infos, nil
}

// each opens every port of every device. A port with an error is unusable; nil: it could not be
// opened.
func each(all []string, f func(d *Device, err error)) {
	for _, name := range all {
		ports := 1
		for port := 1; port <= ports; port++ {
			d, err := openPort(name, port)
			if err == nil {
				ports = int(d.attr.ports)
				err = d.usable()
			}
			f(d, err)
		}
	}
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
	all, err := names()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w on this machine: load its driver, or make one with \"rdma link add "+
			"rxe0 type rxe netdev INTERFACE\"", ErrNoDevice)
	}
	if name == "" {
		return pick(all, ifindex)
	}
	dev, num, hasPort := strings.Cut(name, ":")
	port := 1
	if hasPort {
		if port, err = strconv.Atoi(num); err != nil || port < 1 || port > 255 {
			return nil, fmt.Errorf("%w: %q: want NAME or NAME:PORT, ports count from 1", ErrPort, name)
		}
	}
	if !slices.Contains(all, dev) {
		return nil, fmt.Errorf("%w called %q: there are %s", ErrNoDevice, dev, strings.Join(all, ", "))
	}
	d, err := openPort(dev, port)
	if err != nil {
		return nil, err
	}
	if err := d.usable(); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func pick(all []string, ifindex int) (*Device, error) {
	var best *Device
	var why []error
	each(all, func(d *Device, err error) {
		switch {
		case err != nil:
			why = append(why, err)
		case best == nil:
			best = d
			return
		case int(d.gid.ifindex) == ifindex && int(best.gid.ifindex) != ifindex:
			best, d = d, best
		}
		if d != nil {
			d.release()
		}
	})
	if best == nil {
		return nil, fmt.Errorf("%w that can be used: %w", ErrNoDevice, errors.Join(why...))
	}
	return best, nil
}

func openPort(name string, port int) (*Device, error) {
	d := &Device{name: name, port: port, log: slog.New(slog.DiscardHandler)}
	d.refs.Store(1)
	var n C.int
	list, err := C.ac_devices(&n)
	if list == nil {
		return nil, d.errno("list devices", err)
	}
	defer C.ibv_free_device_list(list)
	for _, dev := range unsafe.Slice(list, int(n)) {
		if C.GoString(C.ibv_get_device_name(dev)) != name {
			continue
		}
		if d.ctx, err = C.ibv_open_device(dev); d.ctx == nil {
			return nil, d.errno("open (is /dev/infiniband readable?)", err)
		}
	}
	if d.ctx == nil {
		return nil, fmt.Errorf("%w called %q any more", ErrNoDevice, name)
	}
	if rc := C.ac_query(d.ctx, C.int(port), &d.attr); rc != 0 {
		C.ibv_close_device(d.ctx)
		return nil, fmt.Errorf("%w: %w; does the device have a port %d?", ErrPort, d.failed("query port", int(rc)), port)
	}
	if d.pd, err = C.ibv_alloc_pd(d.ctx); d.pd == nil {
		C.ibv_close_device(d.ctx)
		return nil, d.errno("allocate a protection domain", err)
	}
	d.mem.dev, d.mem.pin, d.mem.dereg = d, d.mem.register, d.mem.deregister
	return d, nil
}

// usable selects the address.
func (d *Device) usable() error {
	if d.attr.state != portActive {
		return fmt.Errorf("%w: %v is %s: bring its network interface or cable up", ErrPort, d, stateName(d.attr.state))
	}
	var table [256]C.struct_ac_gid
	n := C.ac_gids(d.ctx, &table[0], C.int(len(table)))
	if n < 0 {
		return d.failed("read the GID table", int(n))
	}
	for _, g := range table[:n] {
		if int(g.port) != d.port {
			continue
		}
		if d.attr.link == linkInfiniBand && g._type == gidIB || d.attr.link == linkEthernet && g._type == gidRoCEv2 &&
			goGID(g.raw).Is4In6() {
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
	var table [256]C.struct_ac_gid
	n := C.ac_gids(d.ctx, &table[0], C.int(len(table)))
	return n >= 0 && slices.ContainsFunc(table[:n], func(g C.struct_ac_gid) bool {
		return g.port == d.gid.port && g.index == d.gid.index && g.raw == d.gid.raw
	})
}

func goGID(raw [16]C.uint8_t) netip.Addr {
	var b [16]byte
	for i := range raw {
		b[i] = byte(raw[i])
	}
	return netip.AddrFrom16(b)
}

func (d *Device) info() Info {
	i := Info{
		Name: d.String(), Active: d.attr.state == portActive, State: stateName(d.attr.state), MTU: d.MTU(),
		Link: "InfiniBand",
	}
	if d.attr.link == linkEthernet {
		i.Link = "RoCE"
	}
	if d.usable() == nil {
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
