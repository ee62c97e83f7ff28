//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// async handles the asynchronous events of a device, such as a port that goes down. One goroutine per
// open device reads them, logs them, and notifies the owner of a failed object.
//
// An object cannot be destroyed before its events are acknowledged, and owners may destroy objects.
// The goroutine therefore finds the owner, then acknowledges the event, then notifies the owner.
type async struct {
	dev   *Device
	f     *os.File
	raw   syscall.RawConn
	got   C.struct_ac_async
	rc    C.int
	ended chan struct{}

	mu     sync.Mutex
	owners map[unsafe.Pointer]func(error) // by queue pair, completion queue or receive queue
	failed map[unsafe.Pointer]bool        // completion and receive queues, which may report a failure repeatedly
}

// asyncEvent is one event.
type asyncEvent struct {
	kind   uint32
	object unsafe.Pointer // nil: the event is of the port or the device
	qp     uint32         // number, if the object is a queue pair
	port   uint32         // 0: the event is not of a port
}

const (
	eventQPFatal     = C.IBV_EVENT_QP_FATAL
	eventDeviceFatal = C.IBV_EVENT_DEVICE_FATAL
)

// An eventKind explains a kind of event. An object with a fatal event is unusable.
type eventKind struct {
	words string
	level slog.Level
	fatal bool
}

var eventKinds = map[uint32]eventKind{
	C.IBV_EVENT_CQ_ERR:        {"a completion queue failed", slog.LevelError, true},
	C.IBV_EVENT_QP_FATAL:      {"a queue pair failed", slog.LevelError, true},
	C.IBV_EVENT_QP_REQ_ERR:    {"a queue pair got a request that it cannot carry out", slog.LevelError, true},
	C.IBV_EVENT_QP_ACCESS_ERR: {"a queue pair got a request for memory that it may not use", slog.LevelError, true},
	C.IBV_EVENT_SRQ_ERR:       {"a shared receive queue failed", slog.LevelError, true},
	C.IBV_EVENT_WQ_FATAL:      {"a work queue failed", slog.LevelError, true},
	C.IBV_EVENT_DEVICE_FATAL:  {"the device failed", slog.LevelError, true},

	C.IBV_EVENT_PORT_ERR:          {"the port is down: nothing is sent or received for now", slog.LevelWarn, false},
	C.IBV_EVENT_PORT_ACTIVE:       {"the port is up", slog.LevelInfo, false},
	C.IBV_EVENT_LID_CHANGE:        {"the port has another LID: peers may not reach it any more", slog.LevelWarn, false},
	C.IBV_EVENT_PKEY_CHANGE:       {"the port's partition keys have changed", slog.LevelWarn, false},
	C.IBV_EVENT_GID_CHANGE:        {"the port's GIDs have changed", slog.LevelInfo, false},
	C.IBV_EVENT_SM_CHANGE:         {"another subnet manager is in charge", slog.LevelInfo, false},
	C.IBV_EVENT_CLIENT_REREGISTER: {"the subnet manager has forgotten its clients", slog.LevelInfo, false},

	C.IBV_EVENT_PATH_MIG:            {"a connection has moved to its other path", slog.LevelInfo, false},
	C.IBV_EVENT_PATH_MIG_ERR:        {"a connection could not move to its other path", slog.LevelWarn, false},
	C.IBV_EVENT_COMM_EST:            {"a first packet came", slog.LevelDebug, false},
	C.IBV_EVENT_SQ_DRAINED:          {"a send queue is empty", slog.LevelDebug, false},
	C.IBV_EVENT_SRQ_LIMIT_REACHED:   {"a shared receive queue runs low", slog.LevelDebug, false},
	C.IBV_EVENT_QP_LAST_WQE_REACHED: {"a failed queue pair takes no more receives", slog.LevelDebug, false},
}

// lostGID is a GID_CHANGE that removes the address in use.
var lostGID = eventKind{"the port has lost the job's GID: peers do not reach it any more", slog.LevelError, false}

// newAsync begins to handle a device's events.
func newAsync(d *Device) (*async, error) {
	a := &async{
		dev: d, ended: make(chan struct{}),
		owners: map[unsafe.Pointer]func(error){}, failed: map[unsafe.Pointer]bool{},
	}
	var err error
	if a.f, a.raw, err = pollable(int(d.ctx.async_fd), "events"); err != nil {
		return nil, d.errno("wait for asynchronous events", err)
	}
	go a.run()
	return a, nil
}

func (a *async) run() {
	defer close(a.ended)
	take := func(uintptr) bool {
		a.rc = C.ac_async_take(a.dev.ctx, &a.got)
		return a.rc != 0
	}
	for {
		if err := a.raw.Read(take); err != nil {
			return // stop was called
		}
		if a.rc < 0 {
			err := syscall.Errno(-a.rc)
			a.dev.log.Error("asynchronous events cannot be read any more", "device", a.dev.String(), "err", err)
			return
		}
		e := asyncEvent{uint32(a.got.kind), a.got.object, uint32(a.got.qp), uint32(a.got.port)}
		tell := a.find(&e)
		C.ac_async_ack(&a.got)
		a.handle(&e, tell)
	}
}

// find returns the owners of an event's object.
func (a *async) find(e *asyncEvent) (tell []func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.kind == eventDeviceFatal {
		for _, f := range a.owners {
			tell = append(tell, f)
		}
	} else if f := a.owners[e.object]; e.object != nil && f != nil {
		tell = append(tell, f)
	}
	return tell
}

// handle logs an event, and notifies the owners of failed objects.
func (a *async) handle(e *asyncEvent, tell []func(error)) {
	k, known := eventKinds[e.kind]
	if !known {
		k.words, k.level = fmt.Sprintf("it reports event %d, which this program does not know", e.kind), slog.LevelWarn
	}
	if e.kind == C.IBV_EVENT_GID_CHANGE && !a.dev.hasGID() {
		k = lostGID
	}
	attrs := []slog.Attr{slog.String("device", a.dev.name)}
	if e.port != 0 {
		attrs = append(attrs, slog.Int("port", int(e.port)))
	}
	if e.qp != 0 {
		attrs = append(attrs, slog.String("qp", fmt.Sprintf("%#x", e.qp)))
	}
	if a.again(e) {
		k.level = slog.LevelDebug
	}
	a.dev.log.LogAttrs(context.Background(), k.level, "RDMA device: "+k.words, attrs...)
	if !k.fatal {
		return
	}
	err := &Error{Op: "asynchronous event: " + k.words, Device: a.dev.String(), QP: e.qp, Peer: -1}
	for _, f := range tell {
		f(err)
	}
}

// again reports whether a queue has reported its failure before. A queue pair may fail twice, because
// it can be brought back.
func (a *async) again(e *asyncEvent) (before bool) {
	if e.kind != C.IBV_EVENT_CQ_ERR && e.kind != C.IBV_EVENT_SRQ_ERR {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.failed[e.object]
	a.failed[e.object] = true
	return before
}

// own makes f be called when an object of the device has failed, until disown or shortly after it.
func (a *async) own(object unsafe.Pointer, f func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[object] = f
}

func (a *async) disown(object unsafe.Pointer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, object)
	delete(a.failed, object)
}

// stop ends the goroutine, and waits until it has notified all owners.
func (a *async) stop() {
	_ = a.f.Close()
	<-a.ended
}
