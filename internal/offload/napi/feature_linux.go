package napi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/ethtool.h.
const (
	getStringCount = 0x37
	getStrings     = 0x1b
	getFeatures    = 0x3a
	setFeatures    = 0x3b
	featureNames   = 4 // ETH_SS_FEATURES
	nameSize       = 32
)

// Feature turns a feature of an interface on or off.
func Feature(name, what string, on bool) (undo func(), err error) {
	index, count, err := featureIndex(name, what)
	if err != nil {
		return nil, fmt.Errorf("feature %s: %w", what, err)
	}
	set := func(on bool) error {
		// A header, and for each 32 features what is meant and how it shall be.
		req := make([]uint32, 2+2*((count+31)/32))
		req[0], req[1] = setFeatures, uint32((count+31)/32)
		req[2+2*(index/32)] = 1 << (index % 32)
		if on {
			req[3+2*(index/32)] = 1 << (index % 32)
		}
		return ethtool(name, unsafe.Pointer(&req[0]))
	}
	// A header, and for each 32 features: available, requested, active, never changed.
	get := make([]uint32, 2+4*((count+31)/32))
	get[0], get[1] = getFeatures, uint32((count+31)/32)
	if err := ethtool(name, unsafe.Pointer(&get[0])); err != nil {
		return nil, fmt.Errorf("feature %s: %w", what, err)
	}
	if (get[2+4*(index/32)+2]>>(index%32)&1 == 1) == on {
		return func() {}, nil
	}
	if err := set(on); err != nil {
		return nil, fmt.Errorf("feature %s: %w", what, err)
	}
	return func() { _ = set(!on) }, nil // the interface may be gone
}

func featureIndex(name, what string) (index, count int, err error) {
	info := struct {
		cmd, reserved uint32
		mask          uint64
		count         uint32
		_             uint32
	}{cmd: getStringCount, mask: 1 << featureNames}
	if err := ethtool(name, unsafe.Pointer(&info)); err != nil {
		return 0, 0, err
	}
	count = int(info.count)
	names := make([]byte, 12+count*nameSize)
	for i, v := range []uint32{getStrings, featureNames, info.count} {
		binary.NativeEndian.PutUint32(names[4*i:], v)
	}
	if err := ethtool(name, unsafe.Pointer(&names[0])); err != nil {
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

// ethtool makes a request to an interface's driver.
func ethtool(name string, request unsafe.Pointer) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = request
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}
