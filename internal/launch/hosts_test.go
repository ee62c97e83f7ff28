package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	for list, want := range map[string][]Host{
		"a":                       {{"a", 1}},
		"a:8,b:8":                 {{"a", 8}, {"b", 8}},
		"me@a.b:2, 10.0.0.1:3":    {{"me@a.b", 2}, {"10.0.0.1", 3}},
		"[fd00::1]:4,fd00::2":     {{"fd00::1", 4}, {"fd00::2", 1}},
		"root@[fe80::1%eth0]:2,_": {{"root@fe80::1%eth0", 2}, {"_", 1}},
	} {
		if got, err := ParseHosts(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for list, want := range map[string]string{
		"": "is not the name", "a,,b": "is not the name", "-oProxyCommand=x": "is not the name", "a:0": "want 1 to 1024",
		"a:x": "want 1 to 1024", "a;b": "is not the name", "a:2,a:2": "there twice", "[fd00::1": "want [ADDRESS]:RANKS",
		"[fd00::1]4": "want [ADDRESS]:RANKS", "u@-x": "is not the name", "a b": "is not the name",
	} {
		if got, err := ParseHosts(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", list, got, err, want)
		}
	}
}

func TestReadHosts(t *testing.T) {
	got, err := ReadHosts(strings.NewReader("# nodes\na slots=4\n\n b:2 # second\nc\n"))
	if want := []Host{{"a", 4}, {"b", 2}, {"c", 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "no hosts", "a\nb max_slots=3": "line 2", "a:2 slots=3": "line 1", "a slots=0": "want 1 to 1024",
	} {
		if _, err := ReadHosts(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFill(t *testing.T) {
	hosts := []Host{{"a", 2}, {"b", 3}}
	for ranks, want := range map[int][]Host{1: {{"a", 1}}, 2: {{"a", 2}}, 3: {{"a", 2}, {"b", 1}}, 5: hosts} {
		if got, err := Fill(hosts, ranks); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d: %v, %v", ranks, got, err)
		}
	}
	for _, ranks := range []int{-1, 0, 6} {
		if _, err := Fill(hosts, ranks); err == nil {
			t.Errorf("%d ranks", ranks)
		}
	}
}
