package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A chunk's bit must not become visible before its bytes. On some processors only atomic operations
// that return a value are barriers. A compiler may replace them if the program ignores the value.
func TestBitsAreBarriers(t *testing.T) {
	if _, err := loadSpec(placeObject); err != nil {
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
				t.Errorf("%s: %v is not a barrier", name, ins)
			case asm.FetchOr, asm.FetchAnd:
				found++
			default:
			}
		}
		if found < 3 {
			t.Errorf("%s: %d atomic operations with a result, want 3 or more: token, done and claimed", name, found)
		}
	}
}
