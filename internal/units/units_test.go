package units_test

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// The flag library needs the methods of the pointer, formatting needs those of the value.
var (
	_ encoding.TextUnmarshaler = (*units.Size)(nil)
	_ encoding.TextUnmarshaler = (*units.Rate)(nil)
	_ encoding.TextUnmarshaler = (*units.Probability)(nil)
	_ encoding.TextUnmarshaler = (*units.Stall)(nil)
	_ encoding.TextUnmarshaler = (*units.Crash)(nil)
	_ encoding.TextMarshaler   = units.Size(0)
	_ encoding.TextMarshaler   = units.Rate(0)
	_ encoding.TextMarshaler   = units.Probability(0)
)

// parseText parses a type that has no parse function of its own.
func parseText[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](s string) (v T, err error) {
	err = P(&v).UnmarshalText([]byte(s))
	return v, err
}

// accepted is a valid text, its value, and the text of that value.
type accepted[T any] struct {
	in   string
	want T
	text string
}

func testParse[T interface {
	comparable
	fmt.Stringer
}](t *testing.T, parse func(string) (T, error), good []accepted[T], bad []string, hint string) {
	t.Helper()
	for _, c := range good {
		got, err := parse(c.in)
		if err != nil || got != c.want {
			t.Errorf("%q: got %v, %v; want %v", c.in, got, err, c.want)
			continue
		}
		if s := got.String(); s != c.text {
			t.Errorf("%q is formatted as %q, want %q", c.in, s, c.text)
		}
	}
	for _, in := range bad {
		got, err := parse(in)
		var syntax *units.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: got %v, %v; want a SyntaxError", in, got, err)
			continue
		}
		if !strings.Contains(err.Error(), hint) || syntax.Text != in {
			t.Errorf("%q: the message %q does not list valid forms (%s)", in, err, hint)
		}
	}
}

func TestSize(t *testing.T) {
	testParse(t, units.ParseSize, []accepted[units.Size]{
		{"0", 0, "0"},
		{"1", 1, "1"},
		{"4096", 4096, "4K"},
		{"4K", 4096, "4K"},
		{"4KiB", 4096, "4K"},
		{"1536K", 1536 << 10, "1536K"},
		{"100001", 100001, "100001"},
		{"8M", 8 << 20, "8M"},
		{"8MiB", 8 << 20, "8M"},
		{"1024M", 1 << 30, "1G"},
		{"1G", 1 << 30, "1G"},
		{"1GiB", 1 << 30, "1G"},
		{"007", 7, "7"},
		{"0G", 0, "0"},
		{"9223372036854775807", math.MaxInt64, "9223372036854775807"},
		{"8589934591G", 8589934591 << 30, "8589934591G"},
	}, []string{
		"", " ", "K", "KiB", "4KB", "4kb", "4k", "4m", "4B", "4 K", " 4K", "4K ", "4T", "4Ki", "4KK",
		"-1", "+1", "-4K", "1.5M", "1e3", "0x10", "1_000", "nan", "inf", "four", "٤",
		"9223372036854775808", "8589934592G", "99999999999999999999K",
	}, "4K or 4KiB")
}

func TestRate(t *testing.T) {
	testParse(t, units.ParseRate, []accepted[units.Rate]{
		{"200mbit", 200e6, "200mbit"},
		{"1gbit", 1e9, "1gbit"},
		{"1000mbit", 1e9, "1gbit"},
		{"2.5gbit", 2.5e9, "2.5gbit"},
		{"2.50gbit", 2.5e9, "2.5gbit"},
		{"0.5gbit", 5e8, "500mbit"},
		{"56gbit", 56e9, "56gbit"},
		{"100gbit", 100e9, "100gbit"},
		{"1600gbit", 1.6e12, "1600gbit"},
		{"0.000001mbit", 1, "0.000001mbit"},
		{"1.000000001gbit", 1e9 + 1, "1.000000001gbit"},
		{"9223372036.854775807gbit", math.MaxInt64, "9223372036.854775807gbit"},
	}, []string{
		"", "100", "gbit", "mbit", "100Gbit", "100GBIT", "100gbps", "100g", "100kbit", "1tbit", "100 gbit",
		"0gbit", "0.0mbit", "-1gbit", "+1gbit", ".5gbit", "1.gbit", "1.2.3gbit", "1e3gbit", "nangbit", "infgbit",
		"0.0000001mbit", "0.0000000001gbit", "9223372036.854775808gbit", "99999999999999999999gbit",
	}, "200mbit, 1gbit")
}

func TestProbability(t *testing.T) {
	testParse(t, units.ParseProbability, []accepted[units.Probability]{
		{"0", 0, "0"},
		{"0%", 0, "0"},
		{"1", 1, "1"},
		{"100%", 1, "1"},
		{"0.1%", 0.001, "0.001"},
		{"0.001", 0.001, "0.001"},
		{"1%", 0.01, "0.01"},
		{"5%", 0.05, "0.05"},
		{"50%", 0.5, "0.5"},
		{"99.9%", 0.999, "0.999"},
	}, []string{
		"", "%", "2", "1.1", "101%", "100.1%", "-0.1", "-1%", "+0.1", "1e-3", "0.1%%", "0.1 %", ".1", "1.",
		"nan", "NaN", "inf", "0x1p-2", "half", "1" + strings.Repeat("0", 400),
	}, "0.001 or 0.1%")
}

func TestStall(t *testing.T) {
	testParse(t, parseText[units.Stall], []accepted[units.Stall]{
		{"3@1ms+10ms", units.Stall{Rank: 3, At: time.Millisecond, For: 10 * time.Millisecond}, "3@1ms+10ms"},
		{"0@0+1ns", units.Stall{For: 1}, "0@0s+1ns"},
		{"agg2@0+1ns", units.Stall{Rank: 2, Aggregator: true, For: 1}, "agg2@0s+1ns"},
		{"12@1.5s+1m", units.Stall{Rank: 12, At: 1500 * time.Millisecond, For: time.Minute}, "12@1.5s+1m0s"},
	}, []string{
		"", "3", "3@1ms", "3@+10ms", "@1ms+10ms", "x@1ms+10ms", "-3@1ms+10ms", "+3@1ms+10ms", "3@-1ms+10ms",
		"3@1ms+-10ms", "3@1ms++10ms", "3@1ms+0s", "3@1+1", "3@1ms+10ms+1ms", "3@1ms@2ms+1ms",
		"agg@1ms+10ms", "agg-1@1ms+10ms",
		"4294967296@1ms+1ms", "3@9999999999h+1ms", "3@1ms+9999999999h",
	}, "3@1ms+10ms")
}

func TestCrash(t *testing.T) {
	testParse(t, parseText[units.Crash], []accepted[units.Crash]{
		{"5@100us", units.Crash{Rank: 5, At: 100 * time.Microsecond}, "5@100µs"},
		{"0@0", units.Crash{}, "0@0s"},
		{"agg0@100us", units.Crash{Aggregator: true, At: 100 * time.Microsecond}, "agg0@100µs"},
	}, []string{
		"", "5", "5@", "@100us", "5@100", "5@-1us", "5@+1us", "-5@1us", "+5@1us", "5.0@1us", "5@1us+1us", "2147483648@0",
		"agg@0", "agg", "agg 1@0", "aggagg1@0", "Agg1@0", "agg+1@0",
	}, "5@100us")
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"job 1, größer": "job 1, größer", "a\x1b[2Jb\r\n": "a?[2Jb??", "a\u202eb": "a?b", "\x80": "\ufffd", "": "",
	} {
		if got := units.Printable(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
