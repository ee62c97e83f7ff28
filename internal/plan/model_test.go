package plan

import (
	"testing"
	"time"
)

func TestParseParams(t *testing.T) {
	for text, want := range map[string]float64{
		"7B": 7e9, "70b": 70e9, "1.3B": 1.3e9, "350M": 350e6, "1T": 1e12, "64k": 64e3, "1000": 1000, "100T": 1e14,
	} {
		if got, err := ParseParams(text); err != nil || got < want*0.999999 || got > want*1.000001 {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "7G", "-7B", "0", "101T", "inf", "nan", "0x7", "1e9", "7 B", "1_000"} {
		if got, err := ParseParams(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestModelDefaults(t *testing.T) {
	if l := DefaultLayers(7e9); l != 32 {
		t.Errorf("7B has %d layers", l)
	}
	if l := DefaultLayers(70e9); l != 80 {
		t.Errorf("70B has %d layers", l)
	}
	if l := DefaultLayers(405e9); l != 126 {
		t.Errorf("405B has %d layers", l)
	}
	// 2 * 2.1875e8 parameters * 7000 tokens / 150e12
	if d := DefaultCompute(7e9, 32).Round(10 * time.Microsecond); d != 20420*time.Microsecond {
		t.Errorf("7B computes a layer in %v", d)
	}
	m := Model{Params: 7e9, Layers: 32, DType: "bf16"}
	if n := m.LayerBytes(); n != 437500000 {
		t.Errorf("a layer has %d bytes", n)
	}
}

func TestModelCheck(t *testing.T) {
	good := Model{Params: 7e9, Layers: 32, DType: "bf16", Compute: time.Millisecond}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Model){
		"no parameters":    func(m *Model) { m.Params = 0 },
		"no layers":        func(m *Model) { m.Layers = 0 },
		"too many layers":  func(m *Model) { m.Layers = MaxLayers + 1 },
		"unknown type":     func(m *Model) { m.DType = "int4" },
		"negative compute": func(m *Model) { m.Compute = -1 },
		"long compute":     func(m *Model) { m.Compute = time.Hour },
	} {
		bad := good
		if change(&bad); bad.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
