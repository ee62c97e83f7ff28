package units_test

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/units"
)

// roundTrip checks that the text of every accepted value parses to the same value.
func roundTrip[T interface {
	comparable
	fmt.Stringer
}](t *testing.T, parse func(string) (T, error), ok func(T) bool, s string) {
	t.Helper()
	v, err := parse(s)
	if err != nil {
		if err.Error() == "" {
			t.Errorf("%q: the error has no text", s)
		}
		return
	}
	if !ok(v) {
		t.Errorf("%q: %v is out of range", s, v)
	}
	again, err := parse(v.String())
	if err != nil || again != v {
		t.Errorf("%q is %v, formatted as %q, parsed again as %v, %v", s, v, v.String(), again, err)
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"", "4096", "4K", "4KiB", "8M", "1G", "-1", "8589934592G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roundTrip(t, units.ParseSize, func(n units.Size) bool { return n >= 0 }, s)
	})
}

func FuzzRate(f *testing.F) {
	for _, s := range []string{"", "200mbit", "2.5gbit", "0gbit", "0.000001mbit", "1.000000001gbit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roundTrip(t, units.ParseRate, func(r units.Rate) bool { return r >= 1 }, s)
	})
}

func FuzzProbability(f *testing.F) {
	for _, s := range []string{"", "0.1%", "0.001", "1", "2", "nan", "1e-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roundTrip(t, units.ParseProbability, func(p units.Probability) bool { return p >= 0 && p <= 1 }, s)
	})
}

func FuzzStall(f *testing.F) {
	for _, s := range []string{"", "3@1ms+10ms", "0@0+1ns", "3@1.000000001s+2540400h10m10.000000001s", "agg1@0+1s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roundTrip(t, parseText[units.Stall], func(v units.Stall) bool { return v.Rank >= 0 && v.At >= 0 && v.For > 0 }, s)
	})
}

func FuzzCrash(f *testing.F) {
	for _, s := range []string{"", "5@100us", "0@0", "5@-1us", "agg0@1ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roundTrip(t, parseText[units.Crash], func(v units.Crash) bool { return v.Rank >= 0 && v.At >= 0 }, s)
	})
}

// FuzzSizeFormat checks that every size can be formatted and parsed.
func FuzzSizeFormat(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(1536 << 10))
	f.Fuzz(func(t *testing.T, n int64) {
		if n < 0 {
			t.Skip("sizes are not negative")
		}
		if got, err := units.ParseSize(units.Size(n).String()); err != nil || got != units.Size(n) {
			t.Errorf("%d is formatted as %q, parsed again as %d, %v", n, units.Size(n), got, err)
		}
	})
}

// FuzzRateFormat checks that every rate can be formatted and parsed.
func FuzzRateFormat(f *testing.F) {
	f.Add(int64(1))
	f.Add(int64(100e9))
	f.Fuzz(func(t *testing.T, n int64) {
		if n < 1 {
			t.Skip("rates are positive")
		}
		if got, err := units.ParseRate(units.Rate(n).String()); err != nil || got != units.Rate(n) {
			t.Errorf("%d is formatted as %q, parsed again as %d, %v", n, units.Rate(n), got, err)
		}
	})
}
