package napi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

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
	inode uint64   // inode of the namespace
	sys   *os.Root // sysfs of the namespace
	sock  int      // socket in the namespace, which also keeps it alive
}

// openDevice opens an interface in the network namespace of the calling thread.
func openDevice(ifi *net.Interface) (*device, error) {
	d := &device{index: ifi.Index, sock: -1}
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
	_, d.id.Device, err = d.look()
	return err
}

func (d *device) close() {
	if d.sys != nil {
		_ = d.sys.Close()
	}
	if d.sock >= 0 {
		_ = unix.Close(d.sock)
	}
}

// name returns the interface's current name, or errGone.
func (d *device) name() (string, error) {
	name, inode, err := d.look()
	if err == nil && inode != d.id.Device {
		err = errGone
	}
	return name, err
}

// look returns the name of the interface that has the index now, and the inode of its directory in sysfs.
func (d *device) look() (name string, inode uint64, err error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", 0, err
	}
	req.SetUint32(uint32(d.index))
	if err := unix.IoctlIfreq(d.sock, unix.SIOCGIFNAME, req); err != nil {
		return "", 0, fmt.Errorf("name of interface %d: %w", d.index, goneError(err))
	}
	info, err := d.sys.Stat("class/net/" + req.Name())
	if err != nil {
		return "", 0, fmt.Errorf("sysfs of %s: %w", req.Name(), goneError(err))
	}
	return req.Name(), info.Sys().(*syscall.Stat_t).Ino, nil
}

// goneError adds errGone to the errors that the kernel returns for an interface that does not exist.
func goneError(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w (%w)", errGone, err)
	}
	return err
}

// openSysfs opens the sysfs of the thread's network namespace. /sys may show another namespace.
func openSysfs() (*os.Root, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(mount) }()
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", mount))
}
