package ip

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// Attach implements fabric.Receiver.
func (r *udpReceiver) Attach(s fabric.Sink, failed func(error)) bool {
	if r.poller == nil {
		return false
	}
	sock, err := newRawSocket(r.raw)
	if err != nil {
		return false
	}
	old := r.socket
	r.socket, r.sink, r.wait = sock, s, false
	try := func(fd uintptr) { r.take(fd) } // made once
	src, err := r.poller.add(sock.fd, func(*pollSource) {
		if err := r.serve(sock, try); err != nil {
			failed(err)
		}
	})
	if err != nil {
		r.socket = old
		_ = sock.free()
		return false
	}
	r.source.Store(src)
	_ = r.file.Close() // the socket has two descriptors
	return true
}

// serve hands pending datagrams to the sink.
func (r *udpReceiver) serve(sock *rawSocket, try func(fd uintptr)) error {
	for range udpBurst {
		r.errno = syscall.Errno(0)
		r.scatter.expect(r.sink) // not under the socket's lock: the sink may use the socket
		if err := sock.Control(try); err != nil {
			r.scatter.forget()
			return fabric.ErrClosed
		}
		if r.errno == unix.EAGAIN {
			break
		}
		if r.errno != 0 {
			return fmt.Errorf("multicast from %v: %w", r.group, r.errno)
		}
		r.deliver(r.sink)
	}
	r.sink.Idle()
	return nil
}

// Wake implements fabric.Receiver.
func (r *udpReceiver) Wake() {
	if src := r.source.Load(); src != nil {
		r.poller.wake(src)
		return
	}
	r.mcastWaker.Wake()
}
