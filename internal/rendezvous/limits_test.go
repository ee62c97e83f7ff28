package rendezvous

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// failingListener fails to accept, after every connection and before the first, or always.
type failingListener struct {
	net.Listener
	number syscall.Errno
	always bool
	works  bool
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.works = !l.works; l.works || l.always {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.number)}
	}
	return l.Listener.Accept()
}

// A rank that can accept no connection because of a limit says so, and names the limit.
func TestAcceptLimit(t *testing.T) {
	w := newWorld(t, 2)
	w.root.Listener = &failingListener{Listener: w.root.Listener, number: syscall.EMFILE, always: true}
	js := w.join(w.root)
	err := js[0].err
	if !blames(err, ErrLost, 0) || !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
}

// A limit that is hit for a moment fails no job. Connections that have not proved the key make room.
func TestAcceptLimitForAMoment(t *testing.T) {
	w := newWorld(t, 4)
	w.root.Listener = &failingListener{Listener: w.root.Listener, number: syscall.EMFILE}
	for _, j := range w.join(w.configs()...) {
		if j.err != nil {
			t.Error(j.err)
		}
	}
	g := prepareGate(&w.root, nil)
	for _, proved := range []bool{false, true} {
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }()
		g.enter(near)
		g.progress(near, proved)
	}
	g.relieve()
	g.relieve()
	if len(g.pending.all) != 1 || g.strangers != 1 {
		t.Errorf("%d connections are pending, %d were evicted, want 1 of each", len(g.pending.all), g.strangers)
	}
}

// An error of accept that concerns one connection costs no other its place.
func TestAcceptFailure(t *testing.T) {
	w := newWorld(t, 4)
	w.root.Listener = &failingListener{Listener: w.root.Listener, number: syscall.ECONNABORTED}
	silent, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, j := range w.join(w.configs()...) {
		if j.err != nil {
			t.Error(j.err)
		}
	}
	g := prepareGate(&w.root, []net.Listener{&failingListener{Listener: w.root.Listener, number: syscall.ECONNABORTED}})
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	if !g.enter(near) {
		t.Fatal("the gate is closed")
	}
	_ = w.root.Listener.Close()
	g.accept(g.listeners[0]) // until the listener turns out to be closed
	if len(g.pending.all) != 1 || g.strangers != 0 {
		t.Errorf("%d connections are pending, %d were evicted", len(g.pending.all), g.strangers)
	}
}
