package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A chunk's bit must not be seen before its bytes are. On some processors only atomics that
// return something are barriers, and a compiler leaves that out where nobody looks at it.
func TestBitsAreBarriers(t *testing.T) {
	if _, err := loadPlace(); err != nil {
		t.Skip(err)
	}
	bothObjects(t, checkBarriers)
}

func checkBarriers(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	for name, p := range spec.Programs {
		found := 0
		for _, ins := range p.Instructions {
			switch ins.OpCode.AtomicOp() {
			case asm.OrAtomic, asm.AndAtomic:
				t.Errorf("%s: %v is no barrier", name, ins)
			case asm.FetchOr, asm.FetchAnd:
				found++
			default:
			}
		}
		if found < 3 {
			t.Errorf("%s: %d of the token's, done's and claim's atomics", name, found)
		}
	}
}
