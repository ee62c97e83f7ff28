package napi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/ethtool.h.
const (
	getStringCount = 0x37
	getStrings     = 0x1b
	getFeatures    = 0x3a
	setFeatures    = 0x3b
	featureNames   = 4 // ETH_SS_FEATURES
	nameSize       = 32
)

// Feature turns a feature of an interface in the thread's network namespace on or off.
func Feature(name, what string, on bool) error {
	sock, err := openSocket()
	if err != nil {
		return fmt.Errorf("feature %s of %s: %w", what, name, err)
	}
	defer func() { _ = unix.Close(sock) }()
	return setFeature(sock, name, what, on)
}

// feature reports whether a feature is on.
func feature(sock int, name, what string) (on bool, err error) {
	index, count, err := featureIndex(sock, name, what)
	if err != nil {
		return false, fmt.Errorf("feature %s of %s: %w", what, name, err)
	}
	// A header, then per 32 features: available, requested, active, never changed.
	get := make([]uint32, 2+4*((count+31)/32))
	get[0], get[1] = getFeatures, uint32((count+31)/32)
	if err := ethtool(sock, name, unsafe.Pointer(&get[0])); err != nil {
		return false, fmt.Errorf("feature %s of %s: %w", what, name, err)
	}
	return get[2+4*(index/32)+2]>>(index%32)&1 == 1, nil
}

// setFeature turns a feature on or off if necessary.
func setFeature(sock int, name, what string, on bool) error {
	if now, err := feature(sock, name, what); err != nil || now == on {
		return err
	}
	index, count, err := featureIndex(sock, name, what)
	if err != nil {
		return fmt.Errorf("feature %s of %s: %w", what, name, err)
	}
	// A header, then per 32 features: a mask of those to change, and their values.
	set := make([]uint32, 2+2*((count+31)/32))
	set[0], set[1] = setFeatures, uint32((count+31)/32)
	set[2+2*(index/32)] = 1 << (index % 32)
	if on {
		set[3+2*(index/32)] = 1 << (index % 32)
	}
	if err := ethtool(sock, name, unsafe.Pointer(&set[0])); err != nil {
		return fmt.Errorf("set feature %s of %s: %w", what, name, err)
	}
	return nil
}

func featureIndex(sock int, name, what string) (index, count int, err error) {
	info := struct {
		cmd, reserved uint32
		mask          uint64
		count         uint32
		_             uint32
	}{cmd: getStringCount, mask: 1 << featureNames}
	if err := ethtool(sock, name, unsafe.Pointer(&info)); err != nil {
		return 0, 0, err
	}
	count = int(info.count)
	names := make([]byte, 12+count*nameSize)
	for i, v := range []uint32{getStrings, featureNames, info.count} {
		binary.NativeEndian.PutUint32(names[4*i:], v)
	}
	if err := ethtool(sock, name, unsafe.Pointer(&names[0])); err != nil {
		return 0, 0, err
	}
	for i := range count {
		n, _, _ := strings.Cut(string(names[12+i*nameSize:][:nameSize]), "\x00")
		if n == what {
			return i, count, nil
		}
	}
	return 0, 0, errors.New("not known to the kernel")
}

// openSocket opens a socket in the thread's network namespace, for ioctls.
func openSocket() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
}

// ethtool sends a request to the driver of an interface in the socket's network namespace.
func ethtool(sock int, name string, request unsafe.Pointer) error {
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = request
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(sock), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}
