package inherit

import (
	"net"
	"slices"
	"syscall"
	"testing"
)

// open returns the descriptors of recorded sockets that are still open.
func open() (fds []int64) {
	for _, e := range table {
		device, inode, ok := identify(int(e.FD))
		if e.Inode != 0 && ok && inode == e.Inode && device == e.Device {
			fds = append(fds, e.FD)
		}
	}
	slices.Sort(fds)
	return fds
}

func socket(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestDisabled(t *testing.T) {
	fd := socket(t)
	defer func() { _ = syscall.Close(fd) }()
	FD(fd)
	Conn(nil)
	if len(table) > 0 || next > 0 {
		t.Errorf("%d entries are in use", next)
	}
}

// Sockets come and go, and the table has all open ones as long as it has room for them.
func TestRecord(t *testing.T) {
	Enable(make([]Entry, 4))
	defer func() { table, next = nil, 0; enabled.Store(false) }()
	var fds []int64
	for range 20 {
		if len(fds) == 4 {
			_ = syscall.Close(int(fds[1]))
			_ = syscall.Close(int(fds[2]))
			fds = slices.Delete(fds, 1, 3)
		}
		fd := socket(t)
		FD(fd)
		fds = append(fds, int64(fd))
		if got, want := open(), slices.Sorted(slices.Values(fds)); !slices.Equal(got, want) {
			t.Fatalf("recorded %v, want %v", got, want)
		}
	}
	for len(fds) < 4 {
		fd := socket(t)
		FD(fd)
		fds = append(fds, int64(fd))
	}
	more := socket(t)
	FD(more) // there is no room
	if got := open(); len(got) != 4 || slices.Contains(got, int64(more)) {
		t.Errorf("recorded %v, want four of %v", got, fds)
	}
	// The number of a closed socket is used again, for something else.
	_ = syscall.Close(int(fds[0]))
	file, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := socket(t)
	if got := open(); slices.Contains(got, int64(file)) || slices.Contains(got, int64(other)) {
		t.Errorf("recorded %v, but %d and %d are not", got, file, other)
	}
	for _, fd := range append(fds[1:], int64(more), int64(file), int64(other)) {
		_ = syscall.Close(int(fd))
	}
}

func TestConn(t *testing.T) {
	Enable(make([]Entry, 8))
	defer func() { table, next = nil, 0; enabled.Store(false) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	Conn(l)
	Conn(nil)
	FD(-1)
	if n := len(open()); n != 1 {
		t.Errorf("%d sockets are recorded", n)
	}
	_ = l.Close()
	Conn(l)
	if n := len(open()); n != 0 {
		t.Errorf("%d sockets are recorded, and none is open", n)
	}
}
