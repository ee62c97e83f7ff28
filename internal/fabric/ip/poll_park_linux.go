package ip

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollPark lets a leader sleep in Go's poller, where Go runs one goroutine at a time.
//
// A leader that sleeps in a system call of its own costs much more on a machine with more processes
// than processors. Go's monitor thread (sysmon) wakes when the call returns, and looks every 20 us
// whether the process still has work. With many processes, these looks take most of the processors'
// time. A goroutine that sleeps in Go's poller does not wake the monitor. With several processors
// per process, however, Go's poller would wake a further thread for each event.
type pollPark struct {
	inner int      // epoll of the sockets
	timer int      // timerfd in inner; Go's timers round up to a millisecond
	file  *os.File // epoll with inner, in Go's poller
	raw   syscall.RawConn
	asked bool               // wait was called since the sleep began
	wait  func(uintptr) bool // made once
}

func newPollPark(inner int) (*pollPark, error) {
	p := &pollPark{inner: inner, timer: -1}
	outer, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	_ = unix.SetNonblock(outer, true) // Go's poller takes no other descriptors; it cannot fail
	p.file = os.NewFile(uintptr(outer), "epoll")
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err == nil {
		err = cmp.Or(pollAdd(outer, inner, unix.EPOLLIN), pollAdd(inner, p.timer, unix.EPOLLIN|unix.EPOLLET))
	}
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("epoll: Go's poller does not take it: %w", err)
	}
	// Go's poller forgets earlier events before the first call. It may have seen the one of a socket that is
	// ready now, so that no other would come.
	p.wait = func(uintptr) bool {
		was := p.asked
		p.asked = true
		return was || p.ready()
	}
	return p, nil
}

// sleep blocks until inner has an event, or for the time of wait; a negative wait has no limit. It may
// return early.
func (p *pollPark) sleep(wait time.Duration) {
	if wait > 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait.Nanoseconds())}
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(p.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	}
	p.asked = false
	_ = p.raw.Read(p.wait) // fails only when closed
}

// ready reports whether inner has an event.
func (p *pollPark) ready() bool { return readable(uintptr(p.inner)) }

func (p *pollPark) close() {
	_ = p.file.Close()
	if p.timer >= 0 {
		_ = unix.Close(p.timer)
	}
}
