package bpf

import (
	"bytes"
	_ "embed"
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/cpu"
)

// Both objects come from place.c: place is for production, fault also injects faults. "make bpf" compiles them.
var (
	//go:embed place.o
	placeObject []byte
	//go:embed fault.o
	faultObject []byte
)

// loadSpec reads an object. Objects are compiled for little endian, the byte order of datagrams.
func loadSpec(object []byte) (*ebpf.CollectionSpec, error) {
	if cpu.IsBigEndian {
		return nil, errors.New("not on a big-endian processor: use the host datapath")
	}
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
}
