package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func explain(h Hook, err error) error {
	advice := ""
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		err = unix.EPERM // the library suggests a limit on locked memory, which is not the cause
		need, set := "CAP_BPF and CAP_PERFMON", "cap_bpf,cap_perfmon"
		if h != SockFilter {
			need, set = "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", set+",cap_net_admin"
		}
		advice = "; it needs " + need + ": run as root, or give them to the program (setcap " + set +
			"+ep PROGRAM), or use the host datapath"
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		advice = "; another program is attached there (ip link show): remove it, or use the sockfilter hook"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, ebpf.ErrNotSupported):
		advice = "; this interface or kernel does not have the hook " + string(h) + ": sockfilter needs Linux 5.17, " +
			"tcx 6.6, xdp a driver that takes packets of this MTU; use another hook or the host datapath"
	}
	return fmt.Errorf("%w: %w%s", ErrUnavailable, err, advice)
}
