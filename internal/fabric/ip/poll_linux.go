package ip

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// pollEvents is how many sockets one system call reports.
const pollEvents = 64

// Poller is fabric.Poller with epoll. Go's own poller would wake a thread for each
// message, which looks for a goroutine, which then reads: on a machine with as many
// ranks as processors that costs more than all else. So its sockets are known to an
// epoll of ours, and that one, while nobody leads, to Go's.
//
// There are two of them, one in the other: sockets are in inner, inner is in outer, and
// outer is what Go's poller watches. Who leads takes inner out of outer, as it were, by
// asking for no events: so the background is not woken for what somebody else serves.
// Most who lead once lead again soon. So it stays like that for a moment after, until a
// timer finds that nobody does.
type Poller struct {
	inner, outer int
	file         *os.File // outer, in Go's poller
	raw          syscall.RawConn
	bell         int // an eventfd, in inner

	lead    sync.Mutex
	armed   bool // inner's events reach outer. Of who leads, as are the next two
	leads   uint64
	ticked  uint64 // leads, when the timer looked last
	timer   *time.Timer
	late    atomic.Bool                 // the timer went off while somebody led, and waits for the end of that
	rest    time.Duration               // of the background; of who leads
	back    atomic.Bool                 // the background has lead, but not for long
	wanted  atomic.Int32                // so many wait for that
	events  [pollEvents]unix.EpollEvent // of who leads
	blocked atomic.Bool                 // who leads waits, or nobody does
	kicked  atomic.Bool                 // who leads is not to wait

	mu      sync.Mutex
	sources []*pollSource
	free    []int32
	woken   []*pollSource
	spare   []*pollSource
	some    atomic.Bool // woken is not empty

	closed atomic.Bool
	ended  chan struct{}
}

var (
	_ fabric.Poller   = (*Poller)(nil)
	_ fabric.FDPoller = (*Poller)(nil)
)

// pollSource is a socket that who leads serves by calling ready.
type pollSource struct {
	slot  int32
	fd    int
	ready func(*pollSource)
	woken bool // it is in Poller.woken
	gone  bool
}

// The bell's slot.
const pollBell = -1

// NewPoller starts one.
func NewPoller() (p *Poller, err error) {
	p = &Poller{inner: -1, outer: -1, bell: -1, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			p.closeAll()
		}
	}()
	if p.inner, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if p.outer, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err = unix.EpollCtl(p.inner, unix.EPOLL_CTL_ADD, p.bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: pollBell}); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err = unix.EpollCtl(p.outer, unix.EPOLL_CTL_ADD, p.inner, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	// Only a descriptor that does not block goes to Go's poller.
	if err = unix.SetNonblock(p.outer, true); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.file = os.NewFile(uintptr(p.outer), "epoll")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, err
	}
	if err = p.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("epoll: Go's poller does not take it: %w", err)
	}
	p.blocked.Store(true)
	p.armed = true
	p.timer = time.AfterFunc(time.Hour, p.tick)
	go p.background()
	return p, nil
}

// background serves while nobody leads.
func (p *Poller) background() {
	defer close(p.ended)
	first := false
	wait := func(uintptr) bool { // waits for an edge
		was := first
		first = false
		return !was || p.pending()
	}
	for !p.closed.Load() {
		first = true
		if err := p.raw.Read(wait); err != nil {
			return
		}
		p.lead.Lock()
		p.back.Store(true)
		p.blocked.Store(false)
		for range pollEvents {
			if !p.Poll(0) || p.wanted.Load() > 0 {
				break
			}
		}
		rest := p.rest
		p.rest = 0
		p.release()
		p.back.Store(false)
		p.unlock()
		if rest > 0 {
			// The runtime's timers may round it up to a millisecond; the kernel's do not.
			t := unix.NsecToTimespec(rest.Nanoseconds())
			_ = unix.Nanosleep(&t, nil) // a signal ends it early: as good
		}
	}
}

// Rest implements fabric.Poller.
func (p *Poller) Rest(d time.Duration) { p.rest = d }

// pending reports whether there is something that no edge may tell of any more.
func (p *Poller) pending() bool {
	fds := []unix.PollFd{{Fd: int32(p.outer), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// arm lets the background hear of events. If something is there by now, it hears at
// once. Who leads calls it.
func (p *Poller) arm(on bool) {
	if p.armed == on {
		return
	}
	p.armed = on
	var events uint32
	if on {
		events = unix.EPOLLIN
	}
	_ = unix.EpollCtl(p.outer, unix.EPOLL_CTL_MOD, p.inner, &unix.EpollEvent{Events: events}) // it is there: cannot fail
}

// pollTick is how long after the last one who led the background takes over.
const pollTick = 500 * time.Microsecond

// tick looks whether anybody leads these days.
func (p *Poller) tick() {
	if !p.lead.TryLock() { // somebody does, and is not to be kept
		p.late.Store(true)
		if !p.lead.TryLock() {
			return // who gives lead up sees that
		}
		p.late.Store(false)
	}
	defer p.unlock() // on a busy machine the next tick may come before that
	switch {
	case p.closed.Load() || p.armed:
	case p.leads == p.ticked:
		p.arm(true)
	default:
		p.ticked = p.leads
		p.timer.Reset(pollTick)
	}
}

// Lead implements fabric.Poller.
func (p *Poller) Lead() bool {
	if p.closed.Load() {
		return false
	}
	if !p.lead.TryLock() && !p.relieve() {
		return false
	}
	if p.closed.Load() { // meanwhile
		p.unlock()
		return false
	}
	p.blocked.Store(false)
	p.rest = 0
	p.leads++
	if p.armed {
		p.arm(false)
		p.timer.Reset(pollTick)
	}
	return true
}

// relieve takes over from the background, which gives way soon. Not so from others, who
// may lead for long.
func (p *Poller) relieve() bool {
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	for p.back.Load() {
		runtime.Gosched()
		if p.lead.TryLock() {
			return true
		}
	}
	return p.lead.TryLock()
}

// Yield implements fabric.Poller.
func (p *Poller) Yield() {
	p.leads++
	p.release()
	p.unlock()
}

// unlock gives lead up.
func (p *Poller) unlock() {
	p.lead.Unlock()
	if p.late.Load() && p.late.Swap(false) {
		p.timer.Reset(pollTick)
	}
}

// release is before lead is given up: who wakes a source rings from now on, and what was
// woken until now is rung for.
func (p *Poller) release() {
	p.blocked.Store(true)
	if p.some.Load() {
		p.arm(true)
		p.ring()
	}
}

// Kick implements fabric.Poller.
func (p *Poller) Kick() {
	p.kicked.Store(true)
	if p.blocked.Load() {
		p.ring()
	}
}

func (p *Poller) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(p.bell, one[:]) // fails only when it rings already
	}
}

// Poll implements fabric.Poller.
func (p *Poller) Poll(wait time.Duration) bool {
	n := p.look()
	served := p.serveWoken()
	if n == 0 && !served && wait != 0 {
		p.blocked.Store(true)
		if !p.some.Load() && !p.kicked.Swap(false) { // else somebody did not see that we are about to wait
			n = p.sleep(wait)
		}
		p.blocked.Store(false)
		served = p.serveWoken()
	}
	for i := range n {
		slot := p.events[i].Fd
		if slot == pollBell {
			var b [8]byte
			_, _ = unix.Read(p.bell, b[:])
			continue
		}
		p.mu.Lock()
		s := p.sources[slot]
		p.mu.Unlock()
		if s != nil && !s.gone {
			s.ready(s)
			served = true
		}
	}
	return served
}

// look asks what there is, without waiting and without telling the scheduler, which
// would make a fuss about nothing.
func (p *Poller) look() int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// sleep waits.
func (p *Poller) sleep(wait time.Duration) int {
	var limit *unix.Timespec
	if wait > 0 {
		t := unix.NsecToTimespec(wait.Nanoseconds())
		limit = &t
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents,
		uintptr(unsafe.Pointer(limit)), 0, 0)
	if errno != 0 && errno != unix.EINTR { // before Linux 5.11, or not allowed
		ms := -1
		if wait > 0 {
			ms = int(max(1, wait.Milliseconds()))
		}
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents, uintptr(ms), 0, 0)
	}
	if errno != 0 {
		return 0
	}
	return int(n)
}

// add serves a socket from now on.
func (p *Poller) add(fd int, ready func(*pollSource)) (*pollSource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &pollSource{fd: fd, ready: ready}
	if n := len(p.free); n > 0 {
		s.slot, p.free = p.free[n-1], p.free[:n-1]
	} else {
		s.slot = int32(len(p.sources))
		p.sources = append(p.sources, nil)
	}
	p.sources[s.slot] = s
	if err := unix.EpollCtl(p.inner, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: s.slot}); err != nil {
		p.drop(s)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return s, nil
}

// Watch implements fabric.FDPoller.
func (p *Poller) Watch(fd int, ready func()) (wake func(), err error) {
	s, err := p.add(fd, func(*pollSource) { ready() })
	if err != nil {
		return nil, err
	}
	return func() { p.wake(s) }, nil
}

// remove ends what add began. Who leads calls it, before the socket is closed.
func (p *Poller) remove(s *pollSource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.gone {
		_ = unix.EpollCtl(p.inner, unix.EPOLL_CTL_DEL, s.fd, nil) // it is there
		p.drop(s)
	}
}

// drop frees a slot. p.mu is held.
func (p *Poller) drop(s *pollSource) {
	s.gone = true
	p.sources[s.slot] = nil
	p.free = append(p.free, s.slot)
}

// wake sees that a source is served soon, whether or not its socket has anything.
func (p *Poller) wake(s *pollSource) {
	p.mu.Lock()
	if s.woken {
		p.mu.Unlock()
		return
	}
	s.woken = true
	p.woken = append(p.woken, s)
	p.some.Store(true)
	p.mu.Unlock()
	if p.blocked.Load() {
		p.ring()
	}
}

func (p *Poller) serveWoken() bool {
	if !p.some.Load() {
		return false
	}
	p.mu.Lock()
	list := p.woken
	p.woken, p.spare = p.spare[:0], nil
	p.some.Store(false)
	for _, s := range list {
		s.woken = false
	}
	p.mu.Unlock()
	for _, s := range list {
		if !s.gone {
			s.ready(s)
		}
	}
	p.mu.Lock()
	clear(list)
	p.spare = list[:0]
	p.mu.Unlock()
	return len(list) > 0
}

// Close implements fabric.Poller.
func (p *Poller) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	_ = p.file.SetReadDeadline(mcastPast) // it is open
	<-p.ended
	p.timer.Stop()
	p.lead.Lock() // for who led when we began
	defer p.lead.Unlock()
	p.closeAll()
	return nil
}

func (p *Poller) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		_ = p.file.Close()
		p.outer = -1
	}
	for _, fd := range []int{p.inner, p.outer, p.bell} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.inner, p.outer, p.bell = -1, -1, -1
}
