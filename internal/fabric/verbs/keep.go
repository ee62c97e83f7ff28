//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// A keeper maintains the membership of a group that rdma_cm has joined. The subnet manager, or a port
// that went down, may end the membership (RDMA_CM_EVENT_MULTICAST_ERROR), and then the group's
// datagrams no longer arrive. The keeper joins again, a bounded number of times. Groups that were joined
// with a socket need no keeper, since the kernel answers the network's queries.
type keeper struct {
	dev    *Device
	group  *group
	rebind func() error // attaches the queue pair to the group that was joined last
	take   func() int   // takes an event: its kind, 0 if there is none, or -errno
	rejoin func() int   // requests the group again; 0 or -errno
	wait   time.Duration
	f      *os.File
	raw    syscall.RawConn
	ended  chan struct{}

	mu    sync.Mutex
	tries int // attempts to join again; 0: the group is joined
}

const (
	maxRejoins = 5
	rejoinWait = 500 * time.Millisecond // for the first answer, doubled for each later attempt
)

// Kinds of events of a group.
const (
	groupJoined  = C.ac_cm_joined
	groupLost    = C.ac_cm_lost
	groupRemoved = C.ac_cm_removed
	groupMoved   = C.ac_cm_moved
)

// keep starts the keeper of a group that rdma_cm has joined.
func (g *group) keep(d *Device, rebind func() error) error {
	if g.cm.channel == nil {
		return nil
	}
	k := &keeper{
		dev: d, group: g, rebind: rebind, wait: rejoinWait, ended: make(chan struct{}),
		take:   func() int { return int(C.ac_cm_take(&g.cm)) },
		rejoin: func() int { return int(C.ac_cm_rejoin(&g.cm, ipv4(g.addr))) },
	}
	var err error
	if k.f, k.raw, err = pollable(int(C.ac_cm_fd(&g.cm)), "group"); err != nil {
		return d.errno("wait for events of a group", err)
	}
	g.keeper = k
	go k.run()
	return nil
}

// stop ends the keeper, and waits until it has ended.
func (k *keeper) stop() {
	_ = k.f.Close()
	<-k.ended
}

func (k *keeper) run() {
	defer close(k.ended)
	kind := 0
	take := func(uintptr) bool {
		kind = k.take()
		return kind != 0
	}
	for kind >= 0 {
		switch err := k.raw.Read(take); {
		case err == nil:
			k.handle(kind)
		case errors.Is(err, os.ErrDeadlineExceeded):
			k.lost("no answer came in time")
		default:
			return // stop was called
		}
	}
}

// handle handles an event of the group.
func (k *keeper) handle(kind int) {
	log := k.dev.log.With("device", k.dev.String(), "group", k.group.addr)
	switch kind {
	case groupJoined:
		k.mu.Lock()
		err := k.rebind()
		if err == nil {
			k.tries = 0
			_ = k.f.SetReadDeadline(time.Time{}) // fails only after stop
		}
		k.mu.Unlock()
		if err != nil {
			log.Warn("a multicast group was joined again, and cannot be used", "err", err)
			return // the deadline triggers another attempt
		}
		log.Info("a multicast group was joined again")
	case groupLost:
		k.mu.Lock()
		trying := k.tries > 0
		k.mu.Unlock()
		if !trying { // otherwise the deadline triggers another attempt
			k.lost("the network has ended the membership")
		}
	case groupRemoved:
		log.Error("the device of a multicast group was removed: its datagrams will be fetched")
	case groupMoved:
		log.Warn("the address of a multicast group's device has changed: restart the job if datagrams are lost")
	default:
		if kind < 0 {
			log.Error("a multicast group is not watched any more", "err", syscall.Errno(-kind))
		}
	}
}

// lost joins the group again, unless all attempts have failed.
func (k *keeper) lost(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	log := k.dev.log.With("device", k.dev.String(), "group", k.group.addr)
	if k.tries == maxRejoins {
		_ = k.f.SetReadDeadline(time.Time{}) // fails only after stop
		log.Error("a multicast group is lost for good: its chunks will be fetched", "why", why, "tries", k.tries)
		return
	}
	k.tries++
	log.Warn("a multicast group is lost: joining it again", "why", why, "try", k.tries)
	_ = k.f.SetReadDeadline(time.Now().Add(k.wait << (k.tries - 1))) // likewise
	if rc := k.rejoin(); rc != 0 {
		log.Warn("a multicast group cannot be joined again now", "err", syscall.Errno(-rc))
	}
}
