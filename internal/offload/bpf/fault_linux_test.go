package bpf

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// The production object contains no fault injection: no settings, no random numbers, no counter of
// injected losses.
func TestProductionHasNoFaults(t *testing.T) {
	// The search must find all of them in the fault object; otherwise it proves nothing.
	place, fault := faultsIn(t, placeObject), faultsIn(t, faultObject)
	for what, found := range place {
		if found {
			t.Errorf("the production object has %s", what)
		}
		if !fault[what] {
			t.Errorf("the fault object lacks %s", what)
		}
	}
}

func faultsIn(t *testing.T, object []byte) map[string]bool {
	t.Helper()
	spec, err := loadSpec(object)
	must(t, err)
	found := map[string]bool{}
	for _, name := range []string{"drop_below", "double_below", "hold_below"} {
		_, variable := spec.Variables[name]
		found["the variable "+name] = variable
		found["the name "+name] = bytes.Contains(object, []byte(name))
	}
	const multiplier = 6364136223846793005 // of the function draw in fault.h
	random := false
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			random = random || ins.OpCode == asm.LoadImmOp(asm.DWord) && ins.Constant == multiplier
		}
	}
	found["random numbers"] = random
	return found
}

// New loads the fault object only if faults are configured.
func TestFaultsAreLoadedOnDemand(t *testing.T) {
	for want, f := range map[bool]Fault{false: {Seed: 7}, true: {Reorder: 0.5}} {
		w := newLoopback(t, Config{Chunk: 10, Fault: f}, 1, false)
		if _, got := w.spec.Variables["drop_below"]; got != want {
			t.Errorf("%+v: the object injects faults: %v, want %v", f, got, want)
		}
	}
}
