package bpf

import "fmt"

// Hook is where packets are looked at.
type Hook string

// Hooks.
const (
	SockFilter Hook = "sockfilter"
	TCX        Hook = "tcx"
	XDP        Hook = "xdp"
)

// Hooks are all, the default first.
var Hooks = []Hook{SockFilter, TCX, XDP}

// ParseHook reads one; "" is the default.
func ParseHook(s string) (Hook, error) {
	if s == "" {
		return SockFilter, nil
	}
	for _, h := range Hooks {
		if string(h) == s {
			return h, nil
		}
	}
	return "", fmt.Errorf("unknown hook %q; valid: sockfilter, tcx, xdp", s)
}
