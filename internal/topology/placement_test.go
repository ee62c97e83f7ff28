package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// file returns a reader of one file.
func file(content string) func(string) ([]byte, error) {
	return func(string) ([]byte, error) { return []byte(content), nil }
}

func noFile(name string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestParsePlacement(t *testing.T) {
	for _, c := range []struct {
		text, content string
		want          []int
	}{
		{"order", "", []int{0, 1, 2, 3, 4, 5, 6}},
		{"stride:1", "", []int{0, 1, 2, 3, 4, 5, 6}},
		{"stride:3", "", []int{0, 3, 6, 1, 4, 2, 5}},
		{"stride:7", "", []int{0, 1, 2, 3, 4, 5, 6}},
		{"hosts.txt", "# rank 0\n 6 \n\n0\r\n3", []int{6, 0, 3}},
		{"dir/a:b", "5", []int{5}},
	} {
		got, err := ParsePlacement(c.text, 7, file(c.content))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestRandomPlacementsFollowFromTheirSeed(t *testing.T) {
	random := func(text string) []int {
		p, err := ParsePlacement(text, 64, noFile)
		if err != nil {
			t.Fatal(err)
		}
		if sorted := slices.Sorted(slices.Values(p)); !slices.Equal(sorted, inOrder(64)) {
			t.Errorf("%s is no permutation: %v", text, p)
		}
		return p
	}
	one := random("random:1")
	if !slices.Equal(one, random("random:1")) {
		t.Error("random:1 gives two placements")
	}
	if slices.Equal(one, random("random:2")) || slices.Equal(one, inOrder(64)) {
		t.Error("random:1 is the same as random:2, or in order")
	}
}

func TestParsePlacementErrors(t *testing.T) {
	for _, c := range []struct{ text, content, want string }{
		{"", "", "there is no host in it"},
		{"order:", "", "order takes no number"},
		{"order:3", "", "order takes no number"},
		{"random", "", "random:SEED"},
		{"random:x", "", "random:SEED"},
		{"random:-1", "", "random:SEED"},
		{"random:99999999999999999999", "", "random:SEED"},
		{"stride", "", "N from 1 to the number of hosts, 7"},
		{"stride:0", "", "N from 1"},
		{"stride:8", "", "N from 1"},
		{"f", "# nothing\n\n", "there is no host in it"},
		{"f", "1\n2\n1\n", "ranks 0 and 2 are both on host 1"},
		{"f", "1\n7\n", `line 2 is "7"; want a host number from 0 to 6`},
		{"f", "-1", "want a host number from 0 to 6"},
		{"f", "one", `line 1 is "one"`},
		{"f", strings.Repeat("9", 1000), `line 1 is "99999999999999999999"`},
	} {
		p, err := ParsePlacement(c.text, 7, file(c.content))
		if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %q: %v, %v; want an error that contains %q", c.text, c.content, p, err, c.want)
		}
	}
	_, err := ParsePlacement("shuffled", 7, noFile)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), PlacementForms) {
		t.Errorf("a missing file: %v; want the reason and the forms", err)
	}
}

// Every file gives an error or a placement that Place takes.
func FuzzPlacement(f *testing.F) {
	for _, s := range []string{"", "0", "0\n1\n", "# x\n3\r\n 2", "1\n1", "-1", "9999999999999999999", "order"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		g := mustParse(t, "fat-tree3:16,4")
		p, err := ParsePlacement("file", g.Hosts, file(content))
		if err != nil {
			return
		}
		placed, err := g.Place(p)
		if err != nil || placed.Hosts != len(p) {
			t.Fatalf("Place(%v): %v", p, err)
		}
	})
}

// Hosts keep their names, leaves and links, and only their numbers change.
func TestPlaceRenumbersHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 64)
		placement := rapid.Permutation(inOrder(g.Hosts)).Draw(t, "placement")
		placement = placement[:rapid.IntRange(1, g.Hosts).Draw(t, "ranks")]
		placed, err := g.Place(placement)
		if err != nil {
			t.Fatal(err)
		}
		if placed.Hosts != len(placement) || placed.Switches() != g.Switches() || placed.Name != g.Name {
			t.Fatalf("%s: %d hosts and %d switches after Place(%v)", placed.Name, placed.Hosts, placed.Switches(), placement)
		}
		if placed.InOrder() != slices.Equal(placement, inOrder(len(placement))) {
			t.Fatalf("%s: InOrder returns %v for %v", g.Name, placed.InOrder(), placement)
		}
		racks := map[int]bool{}
		for r, h := range placement {
			racks[g.Rack(h)] = true
			if placed.NodeName(NodeID(r)) != fmt.Sprintf("host%d", h) || placed.Position(r) != h || placed.Rack(r) != g.Rack(h) {
				t.Fatalf("%s: rank %d is on %s in rack %d, want host %d in rack %d",
					g.Name, r, placed.NodeName(NodeID(r)), placed.Rack(r), h, g.Rack(h))
			}
			for q, other := range placement {
				if placed.Hops(r, q) != g.Hops(h, other) {
					t.Fatalf("%s: %d hops from rank %d to %d, want %d", g.Name, placed.Hops(r, q), r, q, g.Hops(h, other))
				}
				if n := placed.LongestPath(); placed.Hops(r, q) > n {
					t.Fatalf("%s: the longest path has %d links, that from rank %d to %d more", g.Name, n, r, q)
				}
			}
		}
		if placed.Racks() != len(racks) {
			t.Fatalf("%s: %d racks hold ranks, want %d", g.Name, placed.Racks(), len(racks))
		}
		// A second placement applies to ranks.
		again, err := placed.Place([]int{len(placement) - 1})
		if err != nil || again.Position(0) != placement[len(placement)-1] {
			t.Fatalf("%s: a second Place: %v", g.Name, err)
		}
	})
}

func TestPlaceErrors(t *testing.T) {
	g := mustParse(t, "star:4")
	for _, p := range [][]int{nil, {4}, {-1}, {0, 0}} {
		if _, err := g.Place(p); err == nil {
			t.Errorf("Place(%v) is no error", p)
		}
	}
}

// Placements that leave racks or pods empty need fewer levels of the tree.
func TestTreesOfPlacements(t *testing.T) {
	for _, c := range []struct {
		spec                            string
		placement                       []int
		racks, trees, switches, longest int
	}{
		{"fat-tree:12,4,3", []int{4, 3, 5}, 1, 1, 1, 2}, // one rack
		{"fat-tree:12,4,3", []int{11, 0}, 2, 3, 3, 4},
		{"fat-tree:12,4,3", []int{7}, 1, 1, 1, 0},
		{"fat-tree3:16,4", []int{9, 8}, 1, 1, 1, 2},
		{"fat-tree3:16,4", []int{10, 8}, 2, 2, 3, 4},            // two racks of pod 2
		{"fat-tree3:16,4", []int{15, 4, 5}, 2, 4, 2 + 2 + 1, 6}, // pods 1 and 3
	} {
		g, err := mustParse(t, c.spec).Place(c.placement)
		if err != nil {
			t.Fatal(err)
		}
		if g.Racks() != c.racks || g.Trees() != c.trees || g.TreeSwitches() != c.switches || g.LongestPath() != c.longest {
			t.Errorf("%s with %v: %d racks, %d trees, %d switches, a path of %d; want %d, %d, %d, %d", c.spec, c.placement,
				g.Racks(), g.Trees(), g.TreeSwitches(), g.LongestPath(), c.racks, c.trees, c.switches, c.longest)
		}
	}
}

func TestByRackOfPlacements(t *testing.T) {
	g, err := mustParse(t, "fat-tree:8,4,2").Place([]int{7, 0, 6, 1, 3})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int{{1, 3}, {4}, {0, 2}}
	if got := g.ByRack(inOrder(g.Hosts)); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestGroups(t *testing.T) {
	g, err := mustParse(t, "fat-tree3:16,4").Place([]int{15, 0, 2, 1, 14})
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.Oversubscribe(4); err != nil {
		t.Fatal(err)
	}
	want := []Groups{
		{[]int{0, 1, 2, 3, 4}, 5, 1},
		{[]int{0, 1, 2, 1, 0}, 3, 0.5}, // two links of a quarter of a host's rate
		{[]int{0, 1, 1, 1, 0}, 2, 1},
	}
	if got := g.Groups(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for spec, want := range map[string]int{"star:1": 0, "star:2": 1, "fat-tree:4,1,2": 1, "fat-tree:4,2,1": 2} {
		if got := mustParse(t, spec).Groups(); len(got) != want {
			t.Errorf("%s: %d levels of groups, want %d", spec, len(got), want)
		}
	}
}

func TestOversubscribe(t *testing.T) {
	for _, c := range []struct {
		spec   string
		k      float64
		uplink float64
	}{
		{"fat-tree:64,8,2", 1, 4},
		{"fat-tree:64,8,2", 8, 0.5},
		{"fat-tree:64,8,2", 1.5, 4 / 1.5},
		{"fat-tree:16,4,1", 4, 1},
		{"fat-tree:4,4,2", 2, 0.25}, // one host, two uplinks: half its rate each would do
		{"fat-tree3:16,4", 4, 0.25},
	} {
		g, err := mustParse(t, c.spec).Oversubscribe(c.k)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range g.Links {
			want := c.uplink
			if g.IsHost(l.From) || g.IsHost(l.To) {
				want = 1
			}
			if math.Abs(l.Multiple-want) > 1e-9 {
				t.Errorf("%s, oversubscribed %v: a link from %s to %s runs at %v, want %v",
					c.spec, c.k, g.NodeName(l.From), g.NodeName(l.To), l.Multiple, want)
			}
		}
		if g.Oversubscription() != c.k {
			t.Errorf("%s: oversubscription %v, want %v", c.spec, g.Oversubscription(), c.k)
		}
	}
	for spec, bad := range map[string][]float64{
		"fat-tree:4,2,1": {0, 0.99, -1, 1025, math.Inf(1), math.NaN()},
		"star:4":         {1.01, 2},
	} {
		for _, k := range bad {
			if _, err := mustParse(t, spec).Oversubscribe(k); err == nil {
				t.Errorf("%s, oversubscribed %v, is no error", spec, k)
			}
		}
	}
	if g := mustParse(t, "star:4"); g.Oversubscription() != 1 {
		t.Errorf("a plain network is oversubscribed %v", g.Oversubscription())
	}
}
