//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"log/slog"
	"syscall"
	"time"
)

// A keeper maintains the membership of a group that rdma_cm has joined. The subnet manager, or a port
// that went down, may end the membership (RDMA_CM_EVENT_MULTICAST_ERROR), and then the group's
// datagrams no longer arrive. The keeper joins again, a bounded number of times. Groups that were joined
// with a socket need no keeper, since the kernel answers the network's queries.
type keeper struct {
	*watcher
	log    *slog.Logger
	rebind func() error  // attaches the queue pair to the group that was joined last
	rejoin func() int    // requests the group again; 0 or -errno
	wait   time.Duration // for the first answer, doubled for each later attempt
	tries  int           // attempts to join again; 0: the group is joined
}

const (
	maxRejoins = 5
	rejoinWait = 500 * time.Millisecond
)

// Kinds of events of a group.
const (
	groupJoined = C.ac_cm_joined
	groupLost   = C.ac_cm_lost
)

// keep starts the keeper of a group that rdma_cm has joined.
func (g *group) keep(d *Device, rebind func() error) error {
	if g.cm.channel == nil {
		return nil
	}
	w, err := newWatcher(int(C.ac_cm_fd(&g.cm)), "group")
	if err != nil {
		return d.errno("wait for events of a group", err)
	}
	g.keeper = &keeper{
		watcher: w, log: g.log(d), rebind: rebind, wait: rejoinWait,
		rejoin: func() int { return int(C.ac_cm_rejoin(&g.cm, ipv4(g.addr))) },
	}
	go g.keeper.run(func() int { return int(C.ac_cm_take(&g.cm)) }, g.keeper.handle, g.keeper.late)
	return nil
}

// log is where events of a group are reported.
func (g *group) log(d *Device) *slog.Logger { return d.log.With("device", d.String(), "group", g.addr) }

// handle handles an event of the group.
func (k *keeper) handle(kind int) {
	switch {
	case kind == groupJoined:
		if err := k.rebind(); err != nil {
			k.log.Warn("a multicast group was joined again, and cannot be used", "err", err)
			return // the deadline triggers another attempt
		}
		k.tries = 0
		_ = k.f.SetReadDeadline(time.Time{}) // fails only after stop
		k.log.Info("a multicast group was joined again")
	case kind == groupLost && k.tries == 0: // otherwise the deadline triggers another attempt
		k.lost("the network has ended the membership")
	case kind == C.ac_cm_removed:
		k.log.Error("the device of a multicast group was removed: its datagrams will be fetched")
	case kind == C.ac_cm_moved:
		k.log.Warn("the address of a multicast group's device has changed: restart the job if datagrams are lost")
	case kind < 0:
		k.log.Error("a multicast group is not watched any more", "err", syscall.Errno(-kind))
	}
}

func (k *keeper) late() { k.lost("no answer came in time") }

// lost joins the group again, unless all attempts have failed.
func (k *keeper) lost(why string) {
	if k.tries == maxRejoins {
		_ = k.f.SetReadDeadline(time.Time{}) // fails only after stop
		k.log.Error("a multicast group is lost for good: its chunks will be fetched", "why", why, "tries", k.tries)
		return
	}
	k.tries++
	k.log.Warn("a multicast group is lost: joining it again", "why", why, "try", k.tries)
	_ = k.f.SetReadDeadline(time.Now().Add(k.wait << (k.tries - 1))) // likewise
	if rc := k.rejoin(); rc != 0 {
		k.log.Warn("a multicast group cannot be joined again now", "err", syscall.Errno(-rc))
	}
}
