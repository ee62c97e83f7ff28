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

// pollEvents is the number of sockets that one system call reports.
const pollEvents = 64

// Poller is fabric.Poller with epoll. For each message, Go's own poller would wake a thread, which
// would look for a goroutine, which would then read. On a machine with as many ranks as processors
// that dominates all other costs. The sockets are therefore in an epoll of this package, and Go's
// poller watches that epoll only while there is no leader.
//
// There are two nested epolls: inner holds the sockets, outer holds inner, and Go's poller watches
// outer. A leader disarms inner in outer, so that the background does not wake up for sockets that
// the leader serves. A leader usually leads again soon, so inner stays disarmed for a moment, until a
// timer finds no leader.
type Poller struct {
	inner, outer int
	file         *os.File // outer, in Go's poller
	raw          syscall.RawConn
	bell         int // eventfd in inner

	lead    sync.Mutex
	armed   bool // events of inner reach outer; owned by the leader, like the next two
	leads   uint64
	ticked  uint64 // value of leads when the timer last fired
	timer   *time.Timer
	late    atomic.Bool                 // the timer fired while there was a leader, and has to be set again
	rest    time.Duration               // requested pause of the background; owned by the leader
	back    atomic.Bool                 // the background leads, for a short time
	wanted  atomic.Int32                // number of goroutines that wait for it
	events  [pollEvents]unix.EpollEvent // owned by the leader
	blocked atomic.Bool                 // the leader is blocked, or there is no leader
	kicked  atomic.Bool                 // the leader must not block

	mu      sync.Mutex
	sources []*pollSource
	free    []int32
	woken   []*pollSource
	spare   []*pollSource
	some    atomic.Bool // whether woken has elements

	closed atomic.Bool
	ended  chan struct{}
}

var (
	_ fabric.Poller   = (*Poller)(nil)
	_ fabric.FDPoller = (*Poller)(nil)
)

// pollSource is a socket that the leader serves by calling ready.
type pollSource struct {
	slot  int32
	fd    int
	ready func(*pollSource)
	woken bool // it is an element of Poller.woken
	gone  bool
}

// pollBell is the slot of the bell.
const pollBell = -1

// NewPoller starts a poller.
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
	if err = unix.EpollCtl(p.inner, unix.EPOLL_CTL_ADD, p.bell, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLET,
		Fd:     pollBell,
	}); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err = unix.EpollCtl(p.outer, unix.EPOLL_CTL_ADD, p.inner, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	// Go's poller takes only nonblocking descriptors.
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

// background serves the sockets while there is no leader.
func (p *Poller) background() {
	defer close(p.ended)
	first := false
	wait := func(uintptr) bool { // blocks until an edge
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
			// The runtime may round a timer up to a millisecond; the kernel does not.
			t := unix.NsecToTimespec(rest.Nanoseconds())
			_ = unix.Nanosleep(&t, nil) // a signal may end it early, which is harmless
		}
	}
}

// Rest implements fabric.Poller.
func (p *Poller) Rest(d time.Duration) { p.rest = d }

// pending reports whether events are there whose edge may have passed.
func (p *Poller) pending() bool {
	fds := []unix.PollFd{{Fd: int32(p.outer), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// arm makes events wake the background, at once if some are there. The leader calls it.
func (p *Poller) arm(on bool) {
	if p.armed == on {
		return
	}
	p.armed = on
	var events uint32
	if on {
		events = unix.EPOLLIN
	}
	_ = unix.EpollCtl(p.outer, unix.EPOLL_CTL_MOD, p.inner,
		&unix.EpollEvent{Events: events}) // inner is in outer: cannot fail
}

// pollTick is how long after the last leader the background takes over.
const pollTick = 500 * time.Microsecond

// tick arms the background if there was no leader since the last tick.
func (p *Poller) tick() {
	if !p.lead.TryLock() { // do not block the leader
		p.late.Store(true)
		if !p.lead.TryLock() {
			return // the leader sees late when it yields
		}
		p.late.Store(false)
	}
	defer p.unlock() // on a busy machine the next tick may fire first
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
	if p.closed.Load() { // closed meanwhile
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

// relieve takes over from the background, which yields soon. Other leaders may lead for long.
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

// unlock ends the leadership.
func (p *Poller) unlock() {
	p.lead.Unlock()
	if p.late.Load() && p.late.Swap(false) {
		p.timer.Reset(pollTick)
	}
}

// release prepares the end of the leadership. From now on wake rings the bell, and release rings for
// the sources that were woken before.
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
		_, _ = unix.Write(p.bell, one[:]) // fails only if it rings already
	}
}

// Poll implements fabric.Poller.
func (p *Poller) Poll(wait time.Duration) bool {
	n := p.look()
	served := p.serveWoken()
	if n == 0 && !served && wait != 0 {
		p.blocked.Store(true)
		if !p.some.Load() && !p.kicked.Swap(false) { // else a wake or a kick did not see that the leader blocks
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

// look polls without blocking. It does not tell the scheduler, which would only add cost.
func (p *Poller) look() int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)),
		pollEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// sleep blocks in epoll.
func (p *Poller) sleep(wait time.Duration) int {
	var limit *unix.Timespec
	if wait > 0 {
		t := unix.NsecToTimespec(wait.Nanoseconds())
		limit = &t
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents,
		uintptr(unsafe.Pointer(limit)), 0, 0)
	if errno != 0 && errno != unix.EINTR { // before Linux 5.11, or forbidden
		ms := -1
		if wait > 0 {
			ms = int(max(1, wait.Milliseconds()))
		}
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents,
			uintptr(ms), 0, 0)
	}
	if errno != 0 {
		return 0
	}
	return int(n)
}

// add adds a socket.
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
	if err := unix.EpollCtl(p.inner, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLRDHUP,
		Fd:     s.slot,
	}); err != nil {
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

// remove removes a socket. The leader calls it before it closes the socket.
func (p *Poller) remove(s *pollSource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.gone {
		_ = unix.EpollCtl(p.inner, unix.EPOLL_CTL_DEL, s.fd, nil) // it is in inner
		p.drop(s)
	}
}

// drop frees a slot. p.mu is held.
func (p *Poller) drop(s *pollSource) {
	s.gone = true
	p.sources[s.slot] = nil
	p.free = append(p.free, s.slot)
}

// wake makes the leader serve a source soon, whether or not its socket is ready.
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
	_ = p.file.SetReadDeadline(past) // it is open
	<-p.ended
	p.timer.Stop()
	p.lead.Lock() // wait for the last leader
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
