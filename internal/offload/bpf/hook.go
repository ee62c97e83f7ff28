package bpf

// Hook is a place where the kernel looks at packets.
type Hook string

// Hooks.
const (
	SockFilter Hook = "sockfilter"
	TCX        Hook = "tcx"
	XDP        Hook = "xdp"
)

// Hooks lists all hooks, the default first. settings.Hooks has the same names.
var Hooks = []Hook{SockFilter, TCX, XDP}
