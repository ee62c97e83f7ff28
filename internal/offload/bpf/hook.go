package bpf

// Hook is the place where the program sees packets.
type Hook string

// Hooks.
const (
	SockFilter Hook = "sockfilter"
	TCX        Hook = "tcx"
	XDP        Hook = "xdp"
)

// Hooks lists all hooks, the default first. settings.Hooks has the same names.
var Hooks = []Hook{SockFilter, TCX, XDP}
