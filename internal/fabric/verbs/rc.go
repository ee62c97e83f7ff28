//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

const (
	// The device repeats an unacknowledged request after 4.096 us * 2^linkTimeout = 268 ms,
	// linkRetries times; some devices wait up to four times as long. A twentieth of all packets may
	// thus be lost, and a dead peer is detected in two to eight seconds. Some devices take 7 retries
	// for an infinite number.
	linkTimeout = 16
	linkRetries = 6

	// maxReads is the largest number of RDMA READs to one peer under way; devices may allow fewer.
	// Reads longer than maxRead are split, since devices limit the length of a message.
	maxReads = 8
	maxRead  = 1 << 20

	// creditReserve is the number of slots that only Credit frames may use: they must get through
	// when no other frame may.
	creditReserve = 2

	// aliveEvery is how long a peer may be silent before this rank probes it.
	aliveEvery = time.Second
	beaconSize = 8

	flushBound   = time.Second     // time for a dropped or leaving peer to take the queue
	goodbyeBound = 2 * time.Second // limit of Close
)

// RC is the reliable side over one RC queue pair per peer that this rank talks to.
//
// One goroutine takes completions and calls the handler. A sender posts its frames itself if there
// is room. Otherwise that goroutine posts them later.
type RC struct {
	registry
	dev       *Device
	rank      int
	sendSlots int // per peer
	recvSlots int
	psn       uint32
	cq        *completionQueue
	lobby     lobby
	cards     []*Card       // by rank
	timeout   time.Duration // after which a peer that does not answer a call is lost
	beacon    *region       // memory that peers read to probe this rank, and memory for the results of its own probes
	peers     []*peer       // by rank; nil: this rank
	h         fabric.Handler
	log       *slog.Logger

	running sync.WaitGroup // loop and watch
	gone    sync.WaitGroup // peers that are not gone
	flush   *sync.Cond     // signals that no frame waits for some peer
	once    sync.Once      // of Close
	closed  atomic.Bool
	quit    chan struct{} // ends watch

	room struct {
		sync.Mutex
		peers, limit int // queue pairs of peers, and those that the completion queue has room for
	}

	counters struct{ doorbells, reads, checks atomic.Uint64 }
}

// Reliable is r with its capabilities.
func (r *RC) Reliable() fabric.Reliable {
	return fabric.Reliable{Messages: r, Memory: r, Lifecycle: r, Direct: r, Allocator: r}
}

// NewRC makes the reliable side of a rank, which peers can call. A peer that does not answer for timeout is lost.
func NewRC(d *Device, rank, size int, timeout time.Duration) (*RC, error) {
	r := &RC{
		dev: d, rank: rank, psn: rand.Uint32N(1 << 24), timeout: timeout,
		// In large jobs, peers get few slots each: 46 MB in total if a rank talks to 188, less than 1 MB for 2.
		recvSlots: min(max(2048/size, 8), 32), sendSlots: min(max(1024/size, 4), 16),
		peers: make([]*peer, size), quit: make(chan struct{}), flush: sync.NewCond(&sync.Mutex{}),
		registry: registry{mem: &d.mem, regs: map[fabric.OpKey]*registration{}, asked: map[fabric.OpKey][]*peer{}},
	}
	d.retain()
	if err := r.open(); err != nil {
		r.free()
		return nil, err
	}
	return r, nil
}

// firstPeers is the number of peers that the completion queue has room for at first.
const firstPeers = 16

func (r *RC) open() (err error) {
	d := r.dev
	r.room.limit = min(firstPeers, max(1, len(r.peers)-1))
	if r.cq, err = newCompletionQueue(d, r.entries(r.room.limit)); err != nil {
		return err
	}
	if _, r.beacon, err = d.mem.alloc(2*beaconSize, true); err != nil {
		return err
	}
	for rank := range r.peers {
		if rank != r.rank {
			r.peers[rank] = newPeer(r, rank)
		}
	}
	return r.lobby.open(r)
}

// entries is the size of a completion queue for some peers and the lobby.
func (r *RC) entries(peers int) int {
	return peers*(r.sendSlots+r.recvSlots+maxReads+1) + lobbyRecvs + lobbySends
}

// reserve makes room in the completion queue for one more peer.
func (r *RC) reserve() error {
	r.room.Lock()
	defer r.room.Unlock()
	if r.room.peers < r.room.limit {
		r.room.peers++
		return nil
	}
	limit := min(2*r.room.limit, len(r.peers)-1)
	if n := r.entries(limit); n > int(r.dev.attr.max_cqe) {
		return fmt.Errorf("verbs: %v: %d peers need a completion queue of %d: it has at most %d", r.dev, limit, n,
			r.dev.attr.max_cqe)
	}
	if rc := C.ibv_resize_cq(r.cq.cq, C.int(r.entries(limit))); rc != 0 {
		return r.dev.failed("enlarge the completion queue", -int(rc))
	}
	r.room.limit = limit
	r.room.peers++
	return nil
}

// Start begins to receive.
func (r *RC) Start(h fabric.Handler, log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r.h, r.log, r.notify = h, log, h.Registered
	for range r.others {
		r.gone.Add(1)
	}
	r.cq.own(r.fail)
	r.running.Go(r.loop)
	r.running.Go(r.watch)
}

// others yields all peers.
func (r *RC) others(yield func(*peer) bool) {
	for _, p := range r.peers {
		if p != nil && !yield(p) {
			return
		}
	}
}

// peer returns a peer. It panics for any other rank.
func (r *RC) peer(rank int) *peer {
	if rank < 0 || rank >= len(r.peers) || r.peers[rank] == nil {
		panic(fmt.Sprintf("fabric/verbs: rank %d of %d has no peer %d", r.rank, len(r.peers), rank))
	}
	return r.peers[rank]
}

// Send implements fabric.Messages.
func (r *RC) Send(to int, msg []byte) { r.peer(to).message(msg, false) }

// SendMore implements fabric.Messages.
func (r *RC) SendMore(to int, msg []byte) { r.peer(to).message(msg, true) }

// Drop implements fabric.Lifecycle.
func (r *RC) Drop(to int) { r.peer(to).drop(flushBound) }

// Alloc implements fabric.Allocator. After Close it returns fabric.ErrClosed.
func (r *RC) Alloc(n int) ([]byte, error) {
	if r.closed.Load() {
		return nil, fabric.ErrClosed
	}
	return r.mem.Alloc(n)
}

// Free implements fabric.Allocator. It works after Close, too.
func (r *RC) Free(b []byte) error { return r.mem.Free(b) }

// Stats implements fabric.Lifecycle.
func (r *RC) Stats() fabric.ReliableStats {
	m := make(map[int]fabric.PeerStats)
	for p := range r.others {
		if s := (fabric.PeerStats{Sent: p.sent.Load(), Received: p.recvd.Load()}); s != (fabric.PeerStats{}) {
			m[p.rank] = s
		}
	}
	return fabric.ReliableStats{Peers: m, DirectReads: r.counters.reads.Load()}
}

// Flush implements fabric.Lifecycle. Acknowledged frames have arrived.
func (r *RC) Flush(limit time.Duration) {
	late := false
	timer := time.AfterFunc(limit, func() {
		r.flush.L.Lock()
		defer r.flush.L.Unlock()
		late = true
		r.flush.Broadcast()
	})
	defer timer.Stop()
	r.flush.L.Lock() // held while peers are asked, so that a change of their answer is signalled later
	defer r.flush.L.Unlock()
	for !late && slices.ContainsFunc(r.peers, func(p *peer) bool { return p != nil && p.waiting() }) {
		r.flush.Wait()
	}
}

// left signals that no frame waits for some peer.
func (r *RC) left() {
	r.flush.L.Lock()
	defer r.flush.L.Unlock()
	r.flush.Broadcast()
}

// Close implements fabric.Lifecycle.
func (r *RC) Close() error {
	r.once.Do(r.close)
	return nil
}

func (r *RC) close() {
	r.closed.Store(true)
	close(r.quit)
	if r.h != nil { // started
		for p := range r.others {
			p.drop(goodbyeBound)
		}
		r.gone.Wait()
	}
	r.shutDown()
	r.free()
}

// free destroys everything that open made, as far as it did.
func (r *RC) free() {
	r.cq.stop()
	r.running.Wait()
	for p := range r.others {
		if p.qp != nil {
			C.ibv_destroy_qp(p.qp)
			p.qp = nil
		}
	}
	r.lobby.destroy(r.mem)
	r.cq.destroy()
	r.forgetAll()
	for p := range r.others {
		if p.link.ah != nil {
			C.ibv_destroy_ah(p.link.ah)
		}
		r.mem.unregister(p.link.reg)
	}
	r.mem.unregister(r.beacon)
	r.dev.release()
}
