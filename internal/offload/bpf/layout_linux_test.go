package bpf

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/allcast/allcast/internal/place"
)

// bothObjects runs a test on the production object and on the fault object.
func bothObjects(t *testing.T, test func(*testing.T, *ebpf.CollectionSpec)) {
	t.Helper()
	for name, object := range map[string][]byte{"place": placeObject, "fault": faultObject} {
		t.Run(name, func(t *testing.T) {
			spec, err := loadSpec(object)
			must(t, err)
			test(t, spec)
		})
	}
}

// Each field has the same offset and size in Go as in the type information of the compiled object.
func TestLayout(t *testing.T) { bothObjects(t, checkLayout) }

func checkLayout(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	for name, g := range map[string]any{"placement": placement{}, "word": place.Word{}, "block": block{}} {
		m := spec.Maps[name+"s"]
		s, ok := m.Value.(*btf.Struct)
		if !ok || s.Name != name {
			t.Fatalf("%s: the values of the map have type %v", name, m.Value)
		}
		typ := reflect.TypeOf(g)
		if uint32(typ.Size()) != s.Size || m.ValueSize != s.Size {
			t.Errorf("%s: %d bytes in Go, %d in C, %d in the map", name, typ.Size(), s.Size, m.ValueSize)
		}
		offsets := map[string][2]uint64{}
		for _, f := range s.Members {
			n, err := btf.Sizeof(f.Type)
			must(t, err)
			offsets[f.Name] = [2]uint64{uint64(f.Offset.Bytes()), uint64(n)}
		}
		seen := 0
		for _, f := range flatten(typ) {
			field := strings.ToLower(f.Name[:1]) + f.Name[1:]
			if field == "_" {
				field = "pad"
			}
			if want, ok := offsets[field]; !ok || want != [2]uint64{uint64(f.Offset), uint64(f.Type.Size())} {
				t.Errorf("%s.%s: offset and size %d, %d in Go, %v in C", name, f.Name, f.Offset, f.Type.Size(), want)
			}
			seen++
		}
		if seen != len(s.Members) {
			t.Errorf("%s: %d fields in Go, %d in C", name, seen, len(s.Members))
		}
	}
	if unsafe.Alignof(placement{}) != 8 || unsafe.Alignof(place.Word{}) != 8 {
		t.Error("atomic fields need an alignment of 8 bytes")
	}
}

// flatten lists the fields of a type, and those of its counts instead of these.
func flatten(typ reflect.Type) (all []reflect.StructField) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type != reflect.TypeFor[counts]() {
			all = append(all, f)
			continue
		}
		for _, inner := range flatten(f.Type) {
			inner.Offset += f.Offset
			all = append(all, inner)
		}
	}
	return all
}

// Constants are equal in C, in Go and in the compiled object.
func TestConstants(t *testing.T) {
	var text []byte
	for _, file := range []string{"place.h", "place.c", "fault.h"} {
		more, err := os.ReadFile(file)
		must(t, err)
		text = append(text, more...)
	}
	for name, want := range map[string]int{
		"PLACEMENTS": placements, "PROBES": probes, "WORDS": words, "BLOCKS": blocks, "REGIONS": regions,
		"VALUE": value, "MAX_DATAGRAM": maxDatagram,
		"COUNTERS": counters, "RANDOM": random, "SHARED": shared, "LOST": lost, "WHOLE": whole,
	} {
		m := regexp.MustCompile(`(?m)^#define ` + name + ` (\([^)]*\)|\d+)`).FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s is not defined", name)
			continue
		}
		if got := cNumber(t, strings.Trim(m[1], "()")); got != want {
			t.Errorf("%s is %d in C, %d in Go", name, got, want)
		}
	}
	bothObjects(t, checkEntries)
	if placements&(placements-1) != 0 || value&(value-1) != 0 || every&(every-1) != 0 || everyLong&(everyLong-1) != 0 ||
		everyXDP&(everyXDP-1) != 0 || maxGroups > whole {
		t.Error("a size is not a power of two, or counters of subgroups overlap with others")
	}
}

func checkEntries(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	for name, want := range map[string]uint32{
		"placements": placements, "words": words, "blocks": blocks, "counters": counters, "regions": regions,
	} {
		if got := spec.Maps[name].MaxEntries; got != want {
			t.Errorf("%s: %d entries in the object, %d in Go", name, got, want)
		}
	}
	if got := spec.Maps["regions"].InnerMap.ValueSize; got != value {
		t.Errorf("regions have entries of %d bytes in the object, %d in Go", got, value)
	}
}

// cNumber reads "1 << 16", "COUNTERS - 1" or "16".
func cNumber(t *testing.T, text string) int {
	t.Helper()
	number := func(s string) int {
		if s == "COUNTERS" {
			return counters
		}
		n, err := strconv.Atoi(s)
		must(t, err)
		return n
	}
	if a, b, ok := strings.Cut(text, " << "); ok {
		return number(a) << number(b)
	}
	if a, b, ok := strings.Cut(text, " - "); ok {
		return number(a) - number(b)
	}
	return number(text)
}
