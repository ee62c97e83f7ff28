//go:build verbs

package verbs

// #cgo CFLAGS: -Wall -Wextra
// #cgo LDFLAGS: -lrdmacm -libverbs
// #cgo noescape ac_post
// #cgo nocallback ac_post
// #cgo noescape ac_post_recv
// #cgo nocallback ac_post_recv
// #cgo noescape ac_poll
// #cgo nocallback ac_poll
// #cgo noescape ac_receive
// #cgo nocallback ac_receive
// #cgo nocallback ac_events
// #include "shim.h"
import "C"

import (
	"net/netip"
	"unsafe"
)

const (
	// Batch is the largest number of requests per doorbell, and of completions per poll.
	Batch = C.ac_batch

	opSend    = C.IBV_WR_SEND
	opSendImm = C.IBV_WR_SEND_WITH_IMM
	opRead    = C.IBV_WR_RDMA_READ
)

// Values that C defines.
type (
	request      = C.struct_ac_send
	completion   = C.struct_ac_done
	ring         = C.struct_ac_ring
	groupAddress = C.struct_ac_mcast
	asyncEvent   = C.struct_ac_async
)

// address is the address of a slice in work requests. The memory is registered, and thus pinned.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func cu64(v uint64) C.uint64_t { return C.uint64_t(v) }

func cu32[T int | uint32](v T) C.uint32_t { return C.uint32_t(v) }

func cbool(v bool) C.int {
	if v {
		return 1
	}
	return 0
}

func goGID(raw [16]C.uint8_t) netip.Addr { return netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&raw))) }

func cGID(raw [16]byte) [16]C.uint8_t { return *(*[16]C.uint8_t)(unsafe.Pointer(&raw)) }

// post posts requests with one doorbell.
func post(qp *C.struct_ibv_qp, r []request) int {
	var took C.int
	return int(C.ac_post(qp, &r[0], C.int(len(r)), nil, 0, 0, &took))
}

// post posts a batch with one doorbell, and returns how many of its requests the queue took.
func (q *udQP) post(r []request) (took, rc int) {
	var n C.int
	rc = int(C.ac_post(q.qp, &r[0], C.int(len(r)), q.ah, q.group.at.qpn, q.group.at.qkey, &n))
	return int(n), rc
}

// postRecv posts receive slots to a queue pair, or to a shared receive queue.
func postRecv(qp *C.struct_ibv_qp, srq *C.struct_ibv_srq, r *ring, slots []uint32) int {
	return int(C.ac_post_recv(qp, srq, r, (*C.uint32_t)(unsafe.SliceData(slots)), C.int(len(slots))))
}

// setError turns a queue pair to ERR: all its requests are flushed.
func setError(qp *C.struct_ibv_qp) int { return setState(qp, C.IBV_QPS_ERR) }

// setState is for transitions that need no other attributes.
func setState(qp *C.struct_ibv_qp, state C.int) int { return int(C.ac_qp_state(qp, state)) }
