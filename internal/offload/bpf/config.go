package bpf

import "net"

// Config says what to load.
type Config struct {
	Hook      Hook
	Interface *net.Interface // that packets come by
	Chunk     int            // bytes of one, at most
	Fault     Fault
	Complain  func(error) // is told once why buffers are not written directly; nil: nobody is
}

// Fault is what goes wrong on purpose, for tests: shares of 1.
type Fault struct {
	Drop, Dup, Reorder float64
	Seed               uint64
}
