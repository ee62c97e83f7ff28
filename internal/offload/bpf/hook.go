package bpf

import "fmt"

// Hook is the place where the program sees packets.
type Hook string

// Hooks.
const (
	SockFilter Hook = "sockfilter"
	TCX        Hook = "tcx"
	XDP        Hook = "xdp"
)

// Hooks lists all hooks, the default first.
var Hooks = []Hook{SockFilter, TCX, XDP}

// ParseHook parses the name of a hook; "" is the default.
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
