//go:build !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package bpf

import (
	"errors"

	"github.com/cilium/ebpf"
)

// loadPlace fails: programs are compiled for one byte order, that of datagrams.
func loadPlace() (*ebpf.CollectionSpec, error) {
	return nil, errors.New("not on a processor that is big endian: use the host datapath")
}
