//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/allcast/allcast"
)

// begin starts an operation. It returns buffers to Go's API as slices of C memory, without a copy.
func (o *operation) begin(c *comm, opts []allcast.CallOption) (*allcast.Request, error) {
	root := int(o.c.root)
	t, op := allcast.DataType(o.c._type), allcast.ReduceOp(o.c.op)
	if C.int32_t(t) != o.c._type || C.int32_t(op) != o.c.op {
		return nil, invalid("element type %d, operator %d: want values of enum allcast_type and enum allcast_op",
			o.c._type, o.c.op)
	}
	o.comm = c
	switch o.c.kind {
	case C.kind_broadcast:
		buf := o.need("buf", o.c.recv, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartBroadcast(buf, root, opts...) })
	case C.kind_allgather:
		send, recv := o.maybe("send", o.c.send, o.c.bytes), o.need("recv", o.c.recv, o.blocks())
		return o.start(func() (*allcast.Request, error) { return c.StartAllgather(send, recv, opts...) })
	case C.kind_allgatherv:
		counts, sum := o.sizes("counts", o.c.counts)
		recv := o.need("recv", o.c.recv, sum)
		send := o.maybe("send", o.c.send, o.own(counts))
		return o.start(func() (*allcast.Request, error) { return c.StartAllgatherv(send, recv, counts, opts...) })
	case C.kind_gather:
		send, recv := o.input(root), o.atRoot("recv", o.c.recv, root, o.blocks())
		return o.start(func() (*allcast.Request, error) { return c.StartGather(send, recv, root, opts...) })
	case C.kind_gatherv:
		counts, sum := o.rootSizes(root)
		send, recv := o.input(root), o.atRoot("recv", o.c.recv, root, sum)
		return o.start(func() (*allcast.Request, error) { return c.StartGatherv(send, recv, counts, root, opts...) })
	case C.kind_scatter:
		send, recv := o.atRoot("send", o.c.send, root, o.blocks()), o.output(root)
		return o.start(func() (*allcast.Request, error) { return c.StartScatter(send, recv, root, opts...) })
	case C.kind_scatterv:
		counts, sum := o.rootSizes(root)
		send, recv := o.atRoot("send", o.c.send, root, sum), o.output(root)
		return o.start(func() (*allcast.Request, error) { return c.StartScatterv(send, recv, counts, root, opts...) })
	case C.kind_alltoall:
		send, recv := o.maybe("send", o.c.send, o.blocks()), o.need("recv", o.c.recv, o.blocks())
		return o.start(func() (*allcast.Request, error) { return c.StartAlltoall(send, recv, opts...) })
	case C.kind_alltoallv:
		out, outSum := o.sizes("send_counts", o.c.counts)
		in, inSum := o.sizes("recv_counts", o.c.recv_counts)
		send, recv := o.maybe("send", o.c.send, outSum), o.need("recv", o.c.recv, inSum)
		return o.start(func() (*allcast.Request, error) { return c.StartAlltoallv(send, recv, out, in, opts...) })
	case C.kind_reduce:
		send, recv := o.input(root), o.atRoot("recv", o.c.recv, root, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartReduce(send, recv, t, op, root, opts...) })
	case C.kind_reduce_scatter:
		send, recv := o.need("send", o.c.send, o.blocks()), o.need("recv", o.c.recv, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartReduceScatter(send, recv, t, op, opts...) })
	case C.kind_reduce_scatterv:
		counts, sum := o.sizes("counts", o.c.counts)
		send, recv := o.need("send", o.c.send, sum), o.need("recv", o.c.recv, o.own(counts))
		return o.start(func() (*allcast.Request, error) {
			return c.StartReduceScatterv(send, recv, counts, t, op, opts...)
		})
	case C.kind_allreduce:
		send, recv := o.maybe("send", o.c.send, o.c.bytes), o.need("recv", o.c.recv, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartAllreduce(send, recv, t, op, opts...) })
	case C.kind_barrier:
		return c.StartBarrier(opts...)
	case C.kind_broadcast_coalesced:
		bufs := o.list("bufs", o.c.recvs, 1)
		return o.start(func() (*allcast.Request, error) { return c.StartBroadcastCoalesced(bufs, root, opts...) })
	case C.kind_allgather_coalesced:
		sends, recvs := o.list("sends", o.c.sends, 1), o.list("recvs", o.c.recvs, c.Size())
		return o.start(func() (*allcast.Request, error) { return c.StartAllgatherCoalesced(sends, recvs, opts...) })
	case C.kind_send:
		buf := o.need("buf", o.c.send, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartSend(buf, root, int(o.c.tag), opts...) })
	case C.kind_recv:
		buf := o.need("buf", o.c.recv, o.c.bytes)
		return o.start(func() (*allcast.Request, error) { return c.StartRecv(buf, root, int(o.c.tag), opts...) })
	}
	return nil, invalid("unknown operation %d", o.c.kind)
}

// operation converts the arguments of an operation, and keeps the first error.
type operation struct {
	c    *C.struct_operation
	comm *comm
	err  error
}

// start starts the operation unless an argument is invalid.
func (o *operation) start(start func() (*allcast.Request, error)) (*allcast.Request, error) {
	if o.err != nil {
		return nil, o.err
	}
	return start()
}

func (o *operation) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// need returns a buffer, which may be NULL only if it is empty.
func (o *operation) need(name string, p unsafe.Pointer, n C.size_t) []byte {
	b, err := buffer(name, p, n)
	o.fail(err)
	return b
}

// maybe returns a buffer, or nil for NULL, which means that the operation works in place.
func (o *operation) maybe(name string, p unsafe.Pointer, n C.size_t) []byte {
	b, err := optional(name, p, n)
	o.fail(err)
	return b
}

// atRoot returns a buffer that only the root has. Others may pass NULL, and their pointer is ignored.
func (o *operation) atRoot(name string, p unsafe.Pointer, root int, n C.size_t) []byte {
	if o.comm.Rank() != root {
		return nil
	}
	return o.need(name, p, n)
}

// input returns the send buffer of this rank. The root may pass NULL if the data is in recv already.
func (o *operation) input(root int) []byte {
	if o.comm.Rank() == root {
		return o.maybe("send", o.c.send, o.c.bytes)
	}
	return o.need("send", o.c.send, o.c.bytes)
}

// output returns the receive buffer of this rank. The root may pass NULL if the data is to stay in send.
func (o *operation) output(root int) []byte {
	if o.comm.Rank() == root {
		return o.maybe("recv", o.c.recv, o.c.bytes)
	}
	return o.need("recv", o.c.recv, o.c.bytes)
}

// blocks returns the size of a buffer with one block per rank.
func (o *operation) blocks() C.size_t {
	n, err := times("bytes", o.c.bytes, o.comm.Size())
	o.fail(err)
	return n
}

func (o *operation) sizes(name string, p *C.size_t) (counts []int, sum C.size_t) {
	counts, sum, err := sizes(name, p, o.comm.Size())
	o.fail(err)
	return counts, sum
}

// rootSizes returns the counts of a Gatherv or Scatterv, which only the root has.
func (o *operation) rootSizes(root int) (counts []int, sum C.size_t) {
	if o.comm.Rank() != root {
		return nil, 0
	}
	return o.sizes("counts", o.c.counts)
}

// own returns this rank's count.
func (o *operation) own(counts []int) C.size_t {
	if counts == nil {
		return 0
	}
	return C.size_t(counts[o.comm.Rank()])
}

// list returns the buffers of a coalesced operation, each of which has a number of blocks.
func (o *operation) list(name string, p *unsafe.Pointer, blocks int) [][]byte {
	pointers, err := array(name, p, o.c.n)
	o.fail(err)
	bytes, err := array("bytes", o.c.counts, o.c.n)
	o.fail(err)
	if o.err != nil {
		return nil
	}
	bufs := make([][]byte, len(pointers))
	for i, p := range pointers {
		n, err := times("bytes", bytes[i], blocks)
		o.fail(err)
		if bufs[i] = o.need(name, p, n); bufs[i] == nil {
			bufs[i] = []byte{}
		}
	}
	return bufs
}

// callOptions converts the details of a call.
func callOptions(c *C.allcast_call) (opts []allcast.CallOption) {
	if c.algorithm != nil {
		opts = append(opts, allcast.WithAlgorithm(C.GoString(c.algorithm)))
	}
	if c.timeout_ms != 0 {
		opts = append(opts, allcast.WithTimeout(milliseconds(c.timeout_ms)))
	}
	if c.factor != 1 {
		opts = append(opts, allcast.WithFactor(float64(c.factor)))
	}
	if c.chains != 0 {
		opts = append(opts, allcast.WithChains(int(c.chains)))
	}
	if c.subgroups != 0 {
		opts = append(opts, allcast.WithSubgroups(int(c.subgroups)))
	}
	return opts
}

// startOperation starts an operation on the communicator that it names.
func startOperation(k *C.struct_operation) (*allcast.Request, error) {
	c, err := commOf(k.comm)
	if err != nil {
		return nil, err
	}
	if k.call.timeout_ms < 0 {
		return nil, invalid("allcast_call.timeout_ms is %d: want 0 or more", int64(k.call.timeout_ms))
	}
	o := operation{c: k}
	return o.begin(c, callOptions(&k.call))
}

//export goRun
func goRun(f *C.struct_failure, k *C.struct_operation, message *C.allcast_message) C.int {
	if k.call.queue != 0 {
		return report(f, invalid("a blocking call with a queue: use the form that starts the operation"))
	}
	r, err := startOperation(k)
	if err == nil {
		err = r.Wait(context.Background())
	}
	if err == nil {
		describe(r, message)
	}
	return report(f, err)
}

//export goStart
func goStart(f *C.struct_failure, k *C.struct_operation, handle *C.allcast_request) C.int {
	if err := checkOut("request", handle); err != nil {
		return report(f, err)
	}
	var q *queue
	if k.call.queue != 0 {
		var err error
		if q, err = queueOf(k.call.queue); err == nil {
			err = q.expect()
		}
		if err != nil {
			return report(f, err)
		}
	}
	r, err := startOperation(k)
	if err != nil {
		if q != nil {
			q.forget()
		}
		return report(f, err)
	}
	if q == nil {
		*handle = C.allcast_request(requests.add(request{Request: r}))
		return C.ALLCAST_OK
	}
	queued := make(chan struct{})
	h, user := requests.add(request{r, queued}), uint64(k.call.user)
	*handle = C.allcast_request(h)
	r.OnDone(func() {
		q.push(completion{h, user, codeOf(r.Err())})
		close(queued)
	})
	return C.ALLCAST_OK
}
