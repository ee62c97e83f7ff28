//go:build !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package bpf

import (
	"errors"

	"github.com/cilium/ebpf"
)

// loadPlace fails: the programs are compiled for little endian, the byte order of datagrams.
func loadPlace() (*ebpf.CollectionSpec, error) {
	return nil, errors.New("not on a big-endian processor: use the host datapath")
}

func loadFault() (*ebpf.CollectionSpec, error) { return loadPlace() }
