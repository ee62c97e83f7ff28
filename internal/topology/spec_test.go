package topology

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseCanonical(t *testing.T) {
	for spec, want := range map[string]string{
		"star:08":               "star:8",
		"fat-tree:188,+12,6":    "fat-tree:188,12,6",
		"fat-tree3:0001024,032": "fat-tree3:1024,32",
		"star:1048576":          "star:1048576",
		"fat-tree3:1,1048576":   "fat-tree3:1,1048576",
	} {
		if g := mustParse(t, spec); g.Name != want {
			t.Errorf("%s parsed as %s, want %s", spec, g.Name, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	forms := []string{
		"star:HOSTS (for example star:8)",
		"fat-tree:HOSTS,LEAVES,SPINES (for example fat-tree:188,12,6)",
		"fat-tree3:HOSTS,RADIX (for example fat-tree3:1024,32)",
	}
	for _, c := range []struct {
		spec string
		want []string
	}{
		{"", forms},
		{":", forms},
		{"8", forms},
		{"torus:4,4", append([]string{`unknown kind "torus"`}, forms...)},
		{"Star:8", forms},
		{" star:8", forms},
		{"star", []string{"too few numbers", "star:8"}},
		{"star:", []string{"too few numbers", "star:8"}},
		{"star:8,2", []string{"too many numbers"}},
		{"star:8:2", []string{`HOSTS is "8:2", not a whole number`}},
		{"star:0", []string{"HOSTS is 0; it must be at least 1"}},
		{"star:-3", []string{"HOSTS is -3; it must be at least 1"}},
		{"star:eight", []string{`HOSTS is "eight", not a whole number`, "star:8"}},
		{"star:8.5", []string{"not a whole number"}},
		{"star:0x8", []string{"not a whole number"}},
		{"star:1K", []string{"not a whole number"}},
		{"star:1048577", []string{"HOSTS is 1048577; at most 1048576"}},
		{"star:99999999999999999999", []string{"HOSTS is 99999999999999999999; at most 1048576"}},
		{"star:-99999999999999999999", []string{"it must be at least 1"}},
		{"fat-tree:188,12", []string{"too few numbers", "fat-tree:188,12,6"}},
		{"fat-tree:188,12,", []string{`SPINES is "", not a whole number`}},
		{"fat-tree:188,12,6,1", []string{"too many numbers"}},
		{"fat-tree:188,0,6", []string{"LEAVES is 0"}},
		{"fat-tree:188,12,-6", []string{"SPINES is -6"}},
		{"fat-tree:188,12, 6", []string{`SPINES is " 6", not a whole number`}},
		{"fat-tree:4,5,1", []string{"5 leaves for 4 hosts"}},
		{"fat-tree:1048576,1048576,1048576", []string{"cables; at most 4194304"}},
		{"fat-tree3:1024", []string{"too few numbers", "fat-tree3:1024,32"}},
		{"fat-tree3:16,5", []string{"radix 5 is odd"}},
		{"fat-tree3:1,1", []string{"radix 1 is odd"}},
		{"fat-tree3:16,0", []string{"RADIX is 0"}},
		{"fat-tree3:17,4", []string{"17 hosts are too many for radix 4; at most 16"}},
		{"fat-tree3:3,2", []string{"at most 2 "}},
		{"fat-tree3:1048576,1048577", []string{"RADIX is 1048577; at most 1048576"}},
	} {
		g, err := Parse(c.spec)
		var bad *SpecError
		if !errors.As(err, &bad) || g != nil {
			t.Errorf("Parse(%q) = %v, %v; want a SpecError", c.spec, g, err)
			continue
		}
		if bad.Spec != c.spec {
			t.Errorf("Parse(%q): the error names the spec %q", c.spec, bad.Spec)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("Parse(%q): the error %q does not contain %q", c.spec, err, w)
			}
		}
	}
}

// Parse never panics and fails with SpecError only. The name of a graph parses to an equal graph.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", ":", "star", "star:1", "star:8", "star:-1", "star:1048577", "fat-tree:188,12,6",
		"fat-tree:5,4,2", "fat-tree:1,1,1",
		"fat-tree:4,5,1", "fat-tree3:16,4", "fat-tree3:5,4", "fat-tree3:2,2", "fat-tree3:17,4", "fat-tree3:1,3",
		"fat-tree:1048576,1048576,9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if _, hosts, s, err := parseShape(spec); err == nil && int64(hosts)+s.cables() > 1<<14 {
			t.Skip("too large: building the graph would slow the fuzzer down")
		}
		g, err := Parse(spec)
		if err != nil {
			var bad *SpecError
			if !errors.As(err, &bad) {
				t.Fatalf("Parse(%q): %T: %v", spec, err, err)
			}
			return
		}
		again, err := Parse(g.Name)
		if err != nil {
			t.Fatalf("the name of Parse(%q) does not parse: %v", spec, err)
		}
		if !reflect.DeepEqual(g, again) {
			t.Fatalf("Parse(%q) and Parse(%q) differ", spec, g.Name)
		}
		last := g.Hosts - 1
		if n := len(g.Route(0, last)); n != g.Hops(0, last) {
			t.Fatalf("%s: %d links from host 0 to host %d, Hops returns %d", g.Name, n, last, g.Hops(0, last))
		}
	})
}
