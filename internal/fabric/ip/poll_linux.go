package ip

import (
	"cmp"
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
// timer finds no leader. The sockets whose datagrams may gather have an epoll of their own inside inner,
// bulk, so that one system call decides whether they end a sleep.
type Poller struct {
	inner, outer int
	bulk         int
	file         *os.File // outer, in Go's poller
	bell         int      // eventfd in inner
	park         *pollPark

	lead    sync.Mutex
	hand    pollHandover
	rest    time.Duration               // requested pause of the background, negative for none; owned by the leader
	back    atomic.Bool                 // the background leads, for a short time
	wanted  atomic.Int32                // number of goroutines that wait for it
	events  [pollEvents]unix.EpollEvent // owned by the leader
	blocked atomic.Bool                 // the leader is blocked, or there is no leader
	kicked  atomic.Bool                 // the leader must not block

	mu      sync.Mutex // guards sources, and the bell against its close
	sources pollSources

	closed atomic.Bool
	ended  chan struct{}
}

// pollHandover decides when the background takes over from leaders. The leader owns all but late.
type pollHandover struct {
	armed  bool // events of inner reach outer
	leads  uint64
	ticked uint64 // value of leads when the timer last fired
	timer  *time.Timer
	late   atomic.Bool // the timer fired while there was a leader, and has to be set again
}

// pollSources are the sockets of a poller. Poller.mu guards byFD and woken.
type pollSources struct {
	byFD  []*pollSource
	woken []*pollSource
	spare []*pollSource // memory for woken; owned by the leader
	some  atomic.Bool   // whether woken has elements
}

var (
	_ fabric.Poller   = (*Poller)(nil)
	_ fabric.FDPoller = (*Poller)(nil)
)

// pollSource is a socket that the leader serves by calling ready.
type pollSource struct {
	fd    int
	bulk  bool // whether it is in bulk, not in inner
	ready func(*pollSource)
	woken bool // it is an element of pollSources.woken
	gone  bool
}

// NewPoller starts a poller.
func NewPoller() (*Poller, error) { return newPoller(runtime.GOMAXPROCS(0) == 1) }

// newPoller starts a poller. With alone set, Go runs one goroutine at a time.
func newPoller(alone bool) (p *Poller, err error) {
	p = &Poller{inner: -1, outer: -1, bulk: -1, bell: -1, rest: noRest, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			p.closeAll()
		}
	}()
	var errs [4]error
	p.inner, errs[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.outer, errs[1] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.bulk, errs[2] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.bell, errs[3] = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err = cmp.Or(errs[:]...); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err = cmp.Or(
		pollAdd(p.inner, p.bell, unix.EPOLLIN|unix.EPOLLET),
		pollAdd(p.inner, p.bulk, unix.EPOLLIN),
		pollAdd(p.outer, p.inner, unix.EPOLLIN),
		unix.SetNonblock(p.outer, true), // Go's poller takes no other descriptors
	); err != nil {
		return nil, err
	}
	p.file = os.NewFile(uintptr(p.outer), "epoll")
	raw, err := p.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err = p.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("epoll: Go's poller does not take it: %w", err)
	}
	if alone {
		p.park, _ = newPollPark(p.inner) // without it, a leader sleeps in the kernel
	}
	p.blocked.Store(true)
	p.hand.armed = true
	p.hand.timer = time.AfterFunc(time.Hour, p.tick)
	go p.background(raw)
	return p, nil
}

// pollIn are the events of a socket that the leader serves.
const pollIn = unix.EPOLLIN | unix.EPOLLRDHUP

func pollAdd(epoll, fd int, events uint32) error {
	err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// pollModify changes the events of a descriptor that is in the epoll. It does not tell the scheduler.
func pollModify(epoll, fd int, events uint32) {
	event := unix.EpollEvent{Events: events, Fd: int32(fd)}
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_MOD, uintptr(fd),
		uintptr(unsafe.Pointer(&event)), 0, 0)
}

// background serves the sockets while there is no leader.
func (p *Poller) background(raw syscall.RawConn) {
	defer close(p.ended)
	first := false
	wait := func(outer uintptr) bool { // blocks until an edge, unless events are there whose edge may have passed
		was := first
		first = false
		return !was || readable(outer)
	}
	for !p.closed.Load() {
		first = true
		if err := raw.Read(wait); err != nil {
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
		p.rest = noRest
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
func (p *Poller) Rest(d time.Duration) {
	if p.rest == noRest || d < p.rest {
		p.rest = d
	}
}

const noRest = -1

// arm makes events wake the background, at once if some are there. The leader calls it.
func (p *Poller) arm(on bool) {
	if p.hand.armed == on {
		return
	}
	p.hand.armed = on
	var events uint32
	if on {
		events = unix.EPOLLIN
	}
	pollModify(p.outer, p.inner, events)
}

// pollTick is how long after the last leader the background takes over.
const pollTick = 500 * time.Microsecond

// tick arms the background if there was no leader since the last tick.
func (p *Poller) tick() {
	if !p.lead.TryLock() { // do not block the leader
		p.hand.late.Store(true)
		if !p.lead.TryLock() {
			return // the leader sees late when it yields
		}
		p.hand.late.Store(false)
	}
	defer p.unlock() // on a busy machine the next tick may fire first
	switch {
	case p.closed.Load() || p.hand.armed:
	case p.hand.leads == p.hand.ticked:
		p.arm(true)
	default:
		p.hand.ticked = p.hand.leads
		p.hand.timer.Reset(pollTick)
	}
}

// Lead implements fabric.Poller.
func (p *Poller) Lead() bool {
	if p.closed.Load() || !p.lead.TryLock() && !p.relieve() {
		return false
	}
	if p.closed.Load() { // closed meanwhile
		p.unlock()
		return false
	}
	p.blocked.Store(false)
	p.rest = noRest
	p.hand.leads++
	if p.hand.armed {
		p.arm(false)
		p.hand.timer.Reset(pollTick)
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
	p.hand.leads++
	p.release()
	p.unlock()
}

func (p *Poller) unlock() {
	p.lead.Unlock()
	if p.hand.late.Load() && p.hand.late.Swap(false) {
		p.hand.timer.Reset(pollTick)
	}
}

// release prepares the end of the leadership. From now on wake rings the bell, and release rings for
// the sources that were woken before.
func (p *Poller) release() {
	p.blocked.Store(true)
	if p.sources.some.Load() {
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
		pollBell(unix.SYS_WRITE, p.bell, &one) // fails only if it rings already
	}
}

// pollBell reads or writes an eventfd, which does not block. It does not tell the scheduler, as look.
func pollBell(call uintptr, bell int, b *[8]byte) {
	_, _, _ = unix.RawSyscall(call, uintptr(bell), uintptr(unsafe.Pointer(b)), uintptr(len(b)))
}

// Poll implements fabric.Poller.
func (p *Poller) Poll(wait time.Duration) bool {
	n := p.look()
	served := p.serveWoken()
	if n == 0 && !served && wait != 0 {
		n = p.block(wait)
		served = p.serveWoken()
	}
	return p.serve(n) || served
}

// Gather implements fabric.Poller.
func (p *Poller) Gather(d time.Duration) {
	pollModify(p.inner, p.bulk, 0)
	n := p.block(d)
	pollModify(p.inner, p.bulk, unix.EPOLLIN)
	p.serveWoken()
	p.serve(n)
}

// block sleeps until an event, a wake or a kick, and returns the number of events.
func (p *Poller) block(wait time.Duration) (n int) {
	p.blocked.Store(true)
	if !p.sources.some.Load() && !p.kicked.Swap(false) { // else a wake or a kick did not see that the leader blocks
		n = p.sleep(wait)
	}
	p.blocked.Store(false)
	return n
}

// serve serves the sockets of the first n events, and reports whether there were any.
func (p *Poller) serve(n int) (served bool) {
	datagrams := false
	for i := range n {
		fd := int(p.events[i].Fd)
		switch fd {
		case p.bell:
			var b [8]byte
			pollBell(unix.SYS_READ, p.bell, &b)
			continue
		case p.bulk:
			datagrams = true
			continue
		}
		p.mu.Lock()
		var s *pollSource
		if fd < len(p.sources.byFD) { // else it is the timer of park
			s = p.sources.byFD[fd]
		}
		p.mu.Unlock()
		if s != nil && !s.gone {
			s.ready(s)
			served = true
		}
	}
	return datagrams && p.serve(p.lookInto(p.bulk)) || served
}

// look polls without blocking.
func (p *Poller) look() int { return p.lookInto(p.inner) }

// lookInto polls an epoll. It does not tell the scheduler, which would only add cost.
func (p *Poller) lookInto(epoll int) int {
	n, _, _ := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&p.events)), pollEvents,
		0, 0, 0)
	return max(0, int(n)) // -1 after an error
}

// sleep blocks until an event or for the time of wait, and returns the number of events.
func (p *Poller) sleep(wait time.Duration) int {
	if p.park != nil {
		p.park.sleep(wait)
		return p.look()
	}
	var limit *unix.Timespec
	if wait > 0 {
		t := unix.NsecToTimespec(wait.Nanoseconds())
		limit = &t
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.inner), uintptr(unsafe.Pointer(&p.events)), pollEvents,
		uintptr(unsafe.Pointer(limit)), 0, 0)
	switch errno {
	case 0:
		return int(n)
	case unix.EINTR:
		return 0
	}
	// Before Linux 5.11, or forbidden.
	ms := -1
	if wait > 0 {
		ms = int(max(1, wait.Milliseconds()))
	}
	ready, _ := unix.EpollWait(p.inner, p.events[:], ms)
	return max(0, ready)
}

// add adds a socket that ends a sleep, and addBulk one whose datagrams may gather.
func (p *Poller) add(fd int, ready func(*pollSource)) (*pollSource, error) {
	return p.addSource(&pollSource{fd: fd, ready: ready})
}

func (p *Poller) addBulk(fd int, ready func(*pollSource)) (*pollSource, error) {
	return p.addSource(&pollSource{fd: fd, bulk: true, ready: ready})
}

func (p *Poller) addSource(s *pollSource) (*pollSource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := pollAdd(p.epollOf(s), s.fd, pollIn); err != nil {
		return nil, err
	}
	list := &p.sources.byFD
	*list = append(*list, make([]*pollSource, max(0, s.fd+1-len(*list)))...)
	(*list)[s.fd] = s
	return s, nil
}

// epollOf returns the epoll of a source, or -1 after Close. The caller holds mu.
func (p *Poller) epollOf(s *pollSource) int {
	if s.bulk {
		return p.bulk
	}
	return p.inner
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
		s.gone = true
		p.sources.byFD[s.fd] = nil
		_ = unix.EpollCtl(p.epollOf(s), unix.EPOLL_CTL_DEL, s.fd, nil) // it is there
	}
}

// wake makes the leader serve a source soon, whether or not its socket is ready.
func (p *Poller) wake(s *pollSource) {
	p.mu.Lock()
	first := !s.woken
	if first {
		s.woken = true
		p.sources.woken = append(p.sources.woken, s)
		p.sources.some.Store(true)
	}
	p.mu.Unlock()
	if first && p.blocked.Load() {
		p.ring()
	}
}

func (p *Poller) serveWoken() bool {
	if !p.sources.some.Load() {
		return false
	}
	p.mu.Lock()
	list := p.sources.woken
	p.sources.woken, p.sources.spare = p.sources.spare[:0], list
	p.sources.some.Store(false)
	for _, s := range list {
		s.woken = false
	}
	p.mu.Unlock()
	for _, s := range list {
		if !s.gone {
			s.ready(s)
		}
	}
	clear(list)
	return len(list) > 0
}

// Close implements fabric.Poller.
func (p *Poller) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	_ = p.file.SetReadDeadline(past) // it is open
	<-p.ended
	p.hand.timer.Stop()
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
	if p.park != nil {
		p.park.close()
	}
	for _, fd := range []int{p.inner, p.outer, p.bulk, p.bell} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.inner, p.outer, p.bulk, p.bell = -1, -1, -1, -1
}
