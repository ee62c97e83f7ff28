package bpf

import (
	"strings"
	"testing"
)

func TestParseHook(t *testing.T) {
	if h, err := ParseHook(""); err != nil || h != Hooks[0] {
		t.Errorf("the default is %q, %v", h, err)
	}
	for _, want := range Hooks {
		if h, err := ParseHook(string(want)); err != nil || h != want {
			t.Errorf("%q, %v, want %q", h, err, want)
		}
	}
	for _, bad := range []string{"XDP", "tc", "sockfilter ", "xdp,tcx", "\x00"} {
		h, err := ParseHook(bad)
		if err == nil || h != "" {
			t.Errorf("%q was taken for %q", bad, h)
			continue
		}
		for _, valid := range Hooks {
			if !strings.Contains(err.Error(), string(valid)) {
				t.Errorf("%v: nothing of %q", err, valid)
			}
		}
	}
}
