package inherit

import (
	"sync"
	"sync/atomic"
	"syscall"
)

var (
	enabled atomic.Bool
	mu      sync.Mutex
	table   []Entry // memory of C, which a child reads without a lock
	next    int     // entries before this one are in use, or were when the table was last swept
)

// Enable starts recording in a table that stays in place for the rest of the process. It is called once, before any
// socket is made.
func Enable(t []Entry) {
	mu.Lock()
	defer mu.Unlock()
	table = t
	enabled.Store(true)
}

// Conn records the descriptor of a connection or a listener. Other values are ignored.
func Conn(c any) {
	if !enabled.Load() {
		return
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { FD(int(fd)) }) // a closed connection has no descriptor
	}
}

// FD records a descriptor.
func FD(fd int) {
	if !enabled.Load() {
		return
	}
	device, inode, ok := identify(fd)
	if !ok {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if next == len(table) {
		sweep()
	}
	if next == len(table) {
		return // a child keeps this descriptor
	}
	e := &table[next]
	next++
	e.Device, e.FD = device, int64(fd)
	atomic.StoreUint64(&e.Inode, inode) // a child sees an entry that is complete, or none
}

// sweep forgets entries whose sockets were closed.
func sweep() {
	kept := 0
	for i := range table {
		e := table[i]
		device, inode, ok := identify(int(e.FD))
		if !ok || inode != e.Inode || device != e.Device {
			continue
		}
		if i != kept {
			// An entry may be there twice for a moment, but is never missing.
			replace(&table[kept], e)
		}
		kept++
	}
	for i := kept; i < len(table); i++ {
		atomic.StoreUint64(&table[i].Inode, 0)
	}
	next = kept
}

// replace overwrites an entry that is not in use.
func replace(e *Entry, by Entry) {
	atomic.StoreUint64(&e.Inode, 0)
	e.Device, e.FD = by.Device, by.FD
	atomic.StoreUint64(&e.Inode, by.Inode)
}

// identify returns the device and the inode of a socket.
func identify(fd int) (device, inode uint64, ok bool) {
	var s syscall.Stat_t
	if err := syscall.Fstat(fd, &s); err != nil || s.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return 0, 0, false
	}
	return s.Dev, s.Ino, true
}
