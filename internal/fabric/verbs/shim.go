//go:build verbs

package verbs

// #cgo CFLAGS: -Wall -Wextra
// #cgo LDFLAGS: -lrdmacm -libverbs
// #cgo noescape ac_post
// #cgo nocallback ac_post
// #cgo noescape ac_post_recv
// #cgo nocallback ac_post_recv
// #cgo noescape ac_post_srq
// #cgo nocallback ac_post_srq
// #cgo noescape ac_poll
// #cgo nocallback ac_poll
// #cgo noescape ac_receive
// #cgo nocallback ac_receive
// #cgo nocallback ac_events
// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"
)

const (
	// Batch is the largest number of requests per doorbell, and of completions per poll.
	Batch = C.ac_batch

	opSend    = C.IBV_WR_SEND
	opSendImm = C.IBV_WR_SEND_WITH_IMM
	opRead    = C.IBV_WR_RDMA_READ
	withImm   = C.IBV_WC_WITH_IMM
)

// spin is how often a completion queue is polled before the goroutine blocks. That takes some
// microseconds, as long as a wake-up. With few processors, other goroutines need the time more.
func spin() int {
	if runtime.NumCPU() <= 2 {
		return 0
	}
	return 200
}

// address is the address of a slice in work requests. The memory is registered, and thus pinned.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func cu64(v uint64) C.uint64_t { return C.uint64_t(v) }

func cu32[T int | uint32](v T) C.uint32_t { return C.uint32_t(v) }

// Requests and completions, as C defines them.
type (
	request    = C.struct_ac_send
	completion = C.struct_ac_done
	ring       = C.struct_ac_ring
)

// post posts requests with one doorbell.
func post(qp *C.struct_ibv_qp, r []request) int {
	var took C.int
	return int(C.ac_post(qp, &r[0], C.int(len(r)), nil, 0, 0, &took))
}

// postDatagrams posts a batch with one doorbell, and returns how many of its requests the queue took.
func postDatagrams(q *udQP, r []request) (took, rc int) {
	var n C.int
	rc = int(C.ac_post(q.qp, &r[0], C.int(len(r)), q.ah, q.farQP, q.qkey, &n))
	return int(n), rc
}

// postRecv posts receive slots.
func postRecv(qp *C.struct_ibv_qp, r *ring, slots []uint32) int {
	if len(slots) == 0 {
		return 0
	}
	return int(C.ac_post_recv(qp, r, (*C.uint32_t)(&slots[0]), C.int(len(slots))))
}

// look polls for completions, once and then spin times more. With arm, if there is none, the next one
// makes an event.
func look(cq *C.struct_ibv_cq, out *[Batch]completion, spin int, arm bool) int {
	event := C.int(0)
	if arm {
		event = 1
	}
	return int(C.ac_poll(cq, &out[0], Batch, C.int(spin), event))
}

// poll polls for completions. If there is none, the next one makes an event.
func poll(cq *C.struct_ibv_cq, out *[Batch]completion) int { return look(cq, out, spin(), true) }

// setError turns a queue pair to ERR: all its requests are flushed.
func setError(qp *C.struct_ibv_qp) int { return setState(qp, C.IBV_QPS_ERR) }

// setState is for transitions that need no other attributes.
func setState(qp *C.struct_ibv_qp, state C.int) int { return int(C.ac_qp_state(qp, state)) }

// resetUD empties a queue pair of any state, and makes it usable again.
func resetUD(q *udQP, port int) int { return int(C.ac_ud_reset(q.qp, C.int(port), q.qkey)) }

// postShared posts slots of a staging ring.
func postShared(srq *C.struct_ibv_srq, r *ring, slots []uint32) int {
	return int(C.ac_post_srq(srq, r, (*C.uint32_t)(&slots[0]), C.int(len(slots))))
}

// take posts slots again and polls for completions, in one call.
func (r *receiver) take() (n, posted int) {
	var first *C.uint32_t
	if r.n > 0 {
		first = (*C.uint32_t)(&r.again[0])
	}
	n = int(C.ac_receive(r.srq, &r.ring, first, C.int(r.n), r.cq, &r.done[0], Batch, C.int(spin()), 1, &r.postErr))
	r.n = 0
	return n, int(r.postErr)
}
