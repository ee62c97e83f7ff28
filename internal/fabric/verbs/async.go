//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
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
	*watcher
	dev *Device
	got asyncEvent

	mu     sync.Mutex
	owners map[unsafe.Pointer]*owner // by queue pair, completion queue or receive queue
}

// owner is the owner of an object.
type owner struct {
	tell   func(error)
	failed bool // the object is a queue, which may report its failure repeatedly, and it has failed
}

const (
	eventQPFatal     = C.IBV_EVENT_QP_FATAL
	eventDeviceFatal = C.IBV_EVENT_DEVICE_FATAL
)

// An eventKind explains a kind of event. An object with an event of level Error is unusable.
type eventKind struct {
	words string
	level slog.Level
}

var eventKinds = map[uint32]eventKind{
	C.IBV_EVENT_CQ_ERR:        {"a completion queue failed", slog.LevelError},
	C.IBV_EVENT_QP_FATAL:      {"a queue pair failed", slog.LevelError},
	C.IBV_EVENT_QP_REQ_ERR:    {"a queue pair got a request that it cannot carry out", slog.LevelError},
	C.IBV_EVENT_QP_ACCESS_ERR: {"a queue pair got a request for memory that it may not use", slog.LevelError},
	C.IBV_EVENT_SRQ_ERR:       {"a shared receive queue failed", slog.LevelError},
	C.IBV_EVENT_WQ_FATAL:      {"a work queue failed", slog.LevelError},
	C.IBV_EVENT_DEVICE_FATAL:  {"the device failed", slog.LevelError},

	C.IBV_EVENT_PORT_ERR:          {"the port is down: nothing is sent or received for now", slog.LevelWarn},
	C.IBV_EVENT_PORT_ACTIVE:       {"the port is up", slog.LevelInfo},
	C.IBV_EVENT_LID_CHANGE:        {"the port has another LID: peers may not reach it any more", slog.LevelWarn},
	C.IBV_EVENT_PKEY_CHANGE:       {"the port's partition keys have changed", slog.LevelWarn},
	C.IBV_EVENT_GID_CHANGE:        {"the port's GIDs have changed", slog.LevelInfo},
	C.IBV_EVENT_SM_CHANGE:         {"another subnet manager is in charge", slog.LevelInfo},
	C.IBV_EVENT_CLIENT_REREGISTER: {"the subnet manager has forgotten its clients", slog.LevelInfo},

	C.IBV_EVENT_PATH_MIG:            {"a connection has moved to its other path", slog.LevelInfo},
	C.IBV_EVENT_PATH_MIG_ERR:        {"a connection could not move to its other path", slog.LevelWarn},
	C.IBV_EVENT_COMM_EST:            {"a first packet came", slog.LevelDebug},
	C.IBV_EVENT_SQ_DRAINED:          {"a send queue is empty", slog.LevelDebug},
	C.IBV_EVENT_SRQ_LIMIT_REACHED:   {"a shared receive queue runs low", slog.LevelDebug},
	C.IBV_EVENT_QP_LAST_WQE_REACHED: {"a failed queue pair takes no more receives", slog.LevelDebug},
}

// lostGID is a GID_CHANGE that removes the address in use.
var lostGID = eventKind{"the port has lost the job's GID: peers do not reach it any more", slog.LevelError}

// newAsync begins to handle a device's events.
func newAsync(d *Device) (*async, error) {
	w, err := newWatcher(int(d.ctx.async_fd), "events")
	if err != nil {
		return nil, d.errno("wait for asynchronous events", err)
	}
	a := &async{watcher: w, dev: d, owners: map[unsafe.Pointer]*owner{}}
	go a.run(func() int { return int(C.ac_async_take(d.ctx, &a.got)) }, a.taken, nil)
	return a, nil
}

// taken handles the event in got.
func (a *async) taken(rc int) {
	if rc < 0 {
		a.dev.log.Error("asynchronous events cannot be read any more", "device", a.dev.String(), "err", syscall.Errno(-rc))
		return
	}
	e := a.got
	tell, again := a.find(&e)
	C.ac_async_ack(&a.got)
	a.handle(&e, tell, again)
}

// find returns the owners of an event's object. again says that a queue has reported its failure before.
// A queue pair may fail twice, because it can be brought back.
func (a *async) find(e *asyncEvent) (tell []func(error), again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for object, o := range a.owners {
		if e.kind == eventDeviceFatal || object == e.object {
			tell = append(tell, o.tell)
			if e.kind == C.IBV_EVENT_CQ_ERR || e.kind == C.IBV_EVENT_SRQ_ERR {
				again, o.failed = o.failed, true
			}
		}
	}
	return tell, again
}

// handle logs an event, and notifies the owners of failed objects.
func (a *async) handle(e *asyncEvent, tell []func(error), again bool) {
	k, known := eventKinds[uint32(e.kind)]
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
	level := k.level
	if again {
		level = slog.LevelDebug
	}
	a.dev.log.LogAttrs(context.Background(), level, "RDMA device: "+k.words, attrs...)
	if k.level != slog.LevelError {
		return
	}
	err := a.dev.failed("asynchronous event: "+k.words, 0).on(uint32(e.qp), -1)
	for _, f := range tell {
		f(err)
	}
}

// own makes f be called when an object of the device has failed, until disown or shortly after it.
func (a *async) own(object unsafe.Pointer, f func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[object] = &owner{tell: f}
}

func (a *async) disown(object unsafe.Pointer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, object)
}
