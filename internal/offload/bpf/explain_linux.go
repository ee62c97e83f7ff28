package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrUnavailable marks that the kernel, or our privileges, do not allow it.
var ErrUnavailable = errors.New("the bpf datapath is not available")

// explain says what to do.
func explain(h Hook, err error) error {
	advice := ""
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		advice = "; it needs CAP_BPF"
		if h != SockFilter {
			advice += " and CAP_NET_ADMIN"
		}
		advice += ": run as root, or give them to the program (setcap cap_bpf,cap_net_admin+ep PROGRAM), or use the host datapath"
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		advice = "; another program is attached there (ip link show): remove it, or use the sockfilter hook"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, ebpf.ErrNotSupported):
		advice = "; this interface or kernel does not have the hook " + string(h) + ": sockfilter needs Linux 5.17, tcx 6.6, xdp a driver that takes packets of this MTU; use another hook or the host datapath"
	}
	return fmt.Errorf("%w: %w%s", ErrUnavailable, err, advice)
}
