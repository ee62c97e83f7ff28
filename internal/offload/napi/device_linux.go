package napi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errGone reports that the interface no longer exists, or has moved to another namespace.
var errGone = errors.New("no such interface")

// identity identifies an interface uniquely. The kernel reuses inodes of namespaces, and names and
// indexes of interfaces.
type identity struct {
	Boot      string // boot id of the kernel
	Namespace uint64 // cookie of the network namespace, unique per boot
	Device    uint64 // inode of its directory in sysfs, unique per boot; a renamed device keeps it
}

// device reaches one interface of one network namespace from threads in any namespace.
type device struct {
	id    identity
	index int
	inode uint64 // inode of the namespace
	sys   int    // sysfs of the namespace
	sock  int    // socket in the namespace, which also keeps it alive
}

// openDevice opens an interface in the network namespace of the calling thread.
func openDevice(ifi *net.Interface) (*device, error) {
	d := &device{index: ifi.Index, sys: -1, sock: -1}
	if err := d.open(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *device) open() (err error) {
	if d.sys, err = openSysfs(); err != nil {
		return fmt.Errorf("open sysfs: %w; it needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root", err)
	}
	if d.sock, err = openSocket(); err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if d.id.Namespace, err = unix.GetsockoptUint64(d.sock, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
		return fmt.Errorf("cookie of the network namespace: %w; it needs Linux 5.14", err)
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return fmt.Errorf("inode of the network namespace, /proc/thread-self/ns/net: %w", err)
	}
	d.inode = ns.Ino
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	d.id.Boot = strings.TrimSpace(string(boot))
	name, err := d.ifname()
	if err != nil {
		return err
	}
	d.id.Device, err = d.sysfsInode(name)
	return err
}

func (d *device) close() {
	for _, fd := range []int{d.sys, d.sock} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// name returns the interface's current name, or errGone.
func (d *device) name() (string, error) {
	name, err := d.ifname()
	if err != nil {
		return "", err
	}
	inode, err := d.sysfsInode(name)
	if err == nil && inode != d.id.Device {
		err = errGone
	}
	return name, err
}

func (d *device) ifname() (string, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	req.SetUint32(uint32(d.index))
	if err := unix.IoctlIfreq(d.sock, unix.SIOCGIFNAME, req); err != nil {
		return "", fmt.Errorf("name of interface %d: %w", d.index, goneError(err))
	}
	return req.Name(), nil
}

func (d *device) sysfsInode(name string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.sys, "class/net/"+name, &st, 0); err != nil {
		return 0, fmt.Errorf("sysfs of %s: %w", name, goneError(err))
	}
	return st.Ino, nil
}

// goneError adds errGone to the errors that the kernel returns for an interface that does not exist.
func goneError(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w (%w)", errGone, err)
	}
	return err
}

// openSysfs opens the sysfs of the thread's network namespace. /sys may show another namespace.
func openSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

func read(dir int, path string) (string, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func write(dir int, path, value string) error {
	fd, err := unix.Openat(dir, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(value))
	return err
}
