package report

import (
	"math"
	"testing"
)

func TestVolume(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 9994: "9.99 kB", 9996: "10.0 kB",
		99949: "99.9 kB", 99960: "100 kB", 999499: "999 kB", 999500: "1.00 MB",
		2464153600: "2.46 GB", 1e15: "1.00 PB", 1e18: "1.00 EB", math.MaxUint64: "18.4 EB",
	} {
		if got := volume(n); got != want {
			t.Errorf("%d is formatted as %q, want %q", n, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for us, want := range map[float64]string{
		0.5: "0.50 µs", 16.08: "16.1 µs", 999.6: "1.00 ms", 1081.26: "1.08 ms", 2.5e6: "2.50 s",
	} {
		if got := duration(us); got != want {
			t.Errorf("%v us is formatted as %q, want %q", us, got, want)
		}
	}
}

func TestColour(t *testing.T) {
	s := scale{max: 1000}
	for n, want := range map[uint64]int{0: 0, 1: 1, 10: 1, 11: 2, 100: 2, 101: 3, 900: 10, 901: 11, 1000: 11} {
		if got := s.colour(n); got != want {
			t.Errorf("%d of 1000 has colour %d, want %d", n, got, want)
		}
	}
	if n := len(s.legend()); n != colours {
		t.Errorf("the legend has %d steps, want %d", n, colours)
	}
}
