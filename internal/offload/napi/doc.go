// Package napi makes processors the receive cores of a network interface. Linux takes
// packets from an interface wherever it was interrupted, or on veth where the sender runs; a
// threaded interface has threads of the kernel for that, and those can be bound to
// processors: the counterpart of the paper's accelerator cores.
package napi
