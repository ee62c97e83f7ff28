package inc

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawTree draws the text of a tree of size ranks. Nodes are in random order, some serve no ranks, some have
// one child.
func drawTree(t *rapid.T, size int) string {
	nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
	order := rapid.Permutation(seq(nodes)).Draw(t, "order")
	ranks := make([][]string, nodes)
	for r := range size {
		n := rapid.IntRange(0, nodes-1).Draw(t, "node")
		ranks[n] = append(ranks[n], fmt.Sprint(r))
	}
	parent, children := make([]int, nodes), make([]int, nodes)
	for n := 1; n < nodes; n++ {
		parent[n] = rapid.IntRange(0, n-1).Draw(t, "parent")
		children[parent[n]]++
	}
	entries := make([]string, nodes)
	drop := make([]bool, nodes)
	for n := nodes - 1; n >= 0; n-- {
		if drop[n] = children[n] == 0 && ranks[n] == nil; drop[n] && n > 0 {
			children[parent[n]]--
		}
		e := fmt.Sprintf("h%d:%d", n, n+1)
		if ranks[n] != nil {
			e += "=" + strings.Join(ranks[n], ",")
		}
		if n > 0 {
			e += fmt.Sprintf(">h%d:%d", parent[n], parent[n]+1)
		}
		entries[n] = e
	}
	var list []string
	for _, n := range order {
		if !drop[n] {
			list = append(list, entries[n])
		}
	}
	return strings.Join(list, " ; ")
}

func seq(n int) (s []int) {
	for i := range n {
		s = append(s, i)
	}
	return s
}

func mustTree(t testing.TB, text string, size int) *Tree {
	t.Helper()
	tree, err := ParseTree(text, size)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestParseTree(t *testing.T) {
	tree := mustTree(t, " a:1 = 3, 0-1 > top:9;top:9=2 ;b:2=4>top:9; [::1]:7=5 > b:2", 6)
	want := []TreeNode{
		{Addr: "a:1", Parent: 1, Ranks: []int{0, 1, 3}, Children: []Child{{0, -1}, {1, -1}, {3, -1}}},
		{Addr: "top:9", Parent: -1, Ranks: []int{2}, Children: []Child{{2, -1}, {-1, 0}, {-1, 2}}},
		{Addr: "b:2", Parent: 1, Ranks: []int{4}, Children: []Child{{4, -1}, {-1, 3}}},
		{Addr: "[::1]:7", Parent: 2, Ranks: []int{5}, Children: []Child{{5, -1}}},
	}
	if !reflect.DeepEqual(tree.Nodes, want) || tree.Top != 1 || tree.Depth() != 3 || tree.Size() != 6 {
		t.Fatalf("%+v, top %d, depth %d, size %d", tree.Nodes, tree.Top, tree.Depth(), tree.Size())
	}
	if s := tree.String(); s != "a:1=0-1,3>top:9;top:9=2;b:2=4>top:9;[::1]:7=5>b:2" {
		t.Error(s)
	}
	for rank, want := range []server{{0, 0}, {0, 1}, {1, 0}, {0, 2}, {2, 0}, {3, 0}} {
		if node, child := tree.Server(rank); (server{node, child}) != want {
			t.Errorf("rank %d: node %d, child %d", rank, node, child)
		}
	}
	for node, want := range []int{1, -1, 2, 1} {
		if p := tree.Position(node); p != want {
			t.Errorf("node %d has position %d, want %d", node, p, want)
		}
	}
	for _, c := range []struct {
		node, owner int
		want        []int
	}{
		{0, 3, []int{0, 1}},
		{1, 3, []int{0, 1, 2}},
		{1, 2, []int{1, 2}},
		{3, 5, nil},
		{2, 5, []int{0}},
		{1, 5, []int{0, 1, 2}},
		{2, 4, []int{1}},
		{3, 0, []int{0}},
	} {
		if got := tree.Expects(c.node, c.owner); !reflect.DeepEqual(got, c.want) {
			t.Errorf("node %d expects %v for owner %d, want %v", c.node, got, c.owner, c.want)
		}
	}
}

func TestParseTreeErrors(t *testing.T) {
	for _, c := range []struct {
		text, want string
		size       int
	}{
		{"", "empty", 2},
		{"a:1=0-1;", "aggregator 2: it is empty", 2},
		{"a:1=0-1;a:1", "a:1 occurs twice", 2},
		{"a:1=0>b:2;c:3=1", "the parent of a:1, b:2, is not in the list", 2},
		{"a:1=0;b:2=1", "both a:1 and b:2 have no parent", 2},
		{"a:1=0>b:2;b:2=1>a:1", "every aggregator has a parent", 2},
		{"a:1=0>a:1;b:2=1", "a:1 is above itself", 2},
		{"t:1=0;a:1=1>b:2;b:2>a:1", "a:1 is above itself", 2},
		{"a:1=0", "rank 1 has no aggregator", 2},
		{"a:1=0-1;b:2=1>a:1", "rank 1 already belongs to a:1", 2},
		{"a:1=0,0-1", "rank 0 already belongs to a:1", 2},
		{"a:1=0-2", "rank 2: the ranks of this job are 0 to 1", 2},
		{"a:1=1-0", "the first is larger than the last", 2},
		{"a:1=0-1;b:2>a:1", "b:2 serves neither ranks nor aggregators", 2},
		{"a:1=", `"" is not a rank`, 1},
		{"a:1=x", `"x" is not a rank`, 1},
		{"a:1=-1", `"" is not a rank`, 2},
		{"a:1=0-", `"" is not a rank`, 2},
		{"a:1=+0", `"+0" is not a rank`, 1},
		{"a:1=0>", "parent of a:1", 1},
		{"a=0", "has no port", 1},
		{":1=0", "has no host", 1},
		{"a:0=0", "port", 1},
		{"a:65536=0", "port", 1},
		{"a:b=0", "port", 1},
		{"::1:7=0", "brackets", 1},
		{"[a]:7=0", "brackets", 1},
		{"[::1:7=0", "brackets", 1},
		{"a b:7=0", "character", 1},
		{"a\x1b[2Jb:7=0", "character", 1},
		{"a\u202eb:7=0", "character", 1},
		{"a\x80:7=0", "character", 1},
		{"a:1=0", "0 ranks", 0},
		{"a:1=0-65535", "65536 ranks", 65536},
		{chain(MaxDepth + 1), "h17:1 has 16 aggregators above it", 1},
		{chain(19), "19 aggregators for 1 ranks: at most 18", 1},
		{strings.Repeat(";", 1<<20), "1048577 aggregators for 2 ranks", 2},
	} {
		tree, err := ParseTree(c.text, c.size)
		if !errors.Is(err, ErrTree) || !strings.Contains(fmt.Sprint(err), c.want) || tree != nil {
			t.Errorf("%q for %d ranks: %v, want an error with %q", c.text, c.size, err, c.want)
		}
	}
	if _, err := ParseTree("t:1=0-65534", 65535); err != nil {
		t.Error(err)
	}
	if tree := mustTree(t, chain(MaxDepth), 1); tree.Depth() != MaxDepth {
		t.Errorf("depth %d", tree.Depth())
	}
}

// chain is a tree of n aggregators, each the only child of the one before, with rank 0 at the end.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("h1:1")
	for i := 2; i <= n; i++ {
		fmt.Fprintf(&b, ";h%d:1", i)
		if i == n {
			b.WriteString("=0")
		}
		fmt.Fprintf(&b, ">h%d:1", i-1)
	}
	return b.String()
}

func TestTreeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "size")
		text := drawTree(t, size)
		tree, err := ParseTree(text, size)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		again, err := ParseTree(tree.String(), size)
		if err != nil || !reflect.DeepEqual(tree, again) {
			t.Fatalf("%q became %q: %+v, then %+v, %v", text, tree.String(), tree, again, err)
		}
		// The set of ranks below each node follows from the parents alone.
		for node := range tree.Nodes {
			absents := tree.absents(node)
			for owner := range size {
				if a := tree.absent(node, owner); int(absents[owner]) != a {
					t.Fatalf("%q: node %d: owner %d has the absent child %d, want %d", text, node, owner, absents[owner], a)
				}
				var want []int
				for i, c := range tree.Nodes[node].Children {
					contributes := c.Rank >= 0 && c.Rank != owner
					for r := range size {
						for at, _ := tree.Server(r); at >= 0; at = tree.Nodes[at].Parent {
							contributes = contributes || c.Node == at && r != owner
						}
					}
					if contributes {
						want = append(want, i)
					}
				}
				if got := tree.Expects(node, owner); !reflect.DeepEqual(got, want) {
					t.Fatalf("%q: node %d expects %v for owner %d, want %v", text, node, got, owner, want)
				}
			}
		}
	})
}

// The digest is that of the order of addition: addresses and the order of unrelated nodes do not count.
func TestTreeDigest(t *testing.T) {
	base := mustTree(t, "t:1;a:1=0-1>t:1;b:1=2-3>t:1", 4).Digest()
	for text, same := range map[string]bool{
		"x:9;y:9=0-1>x:9;z:9=2-3>x:9":         true,
		"y:9=0-1>x:9;z:9=2-3>x:9;x:9":         true,
		"t:1;b:1=2-3>t:1;a:1=0-1>t:1":         false,
		"t:1;a:1=0,2>t:1;b:1=1,3>t:1":         false,
		"t:1=0-3":                             false,
		"t:1=0-1;b:1=2-3>t:1":                 false,
		"t:1;a:1=0-1>t:1;b:1=2-3>a:1":         false,
		"t:1;a:1=0-1>t:1;b:1=2>t:1;c:1=3>b:1": false,
	} {
		if (mustTree(t, text, 4).Digest() == base) != same {
			t.Errorf("%q: same digest: %v, want %v", text, !same, same)
		}
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add("a:1=0-3", 4)
	f.Add("t:1;a:1=0-1>t:1;b:1=2,3>t:1", 4)
	f.Add("[::1]:7 = 0 > a:1; a:1", 1)
	f.Add("a:1=0>b:1;b:1=1>a:1", 2)
	f.Add(";;=>-,", 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		tree, err := ParseTree(text, size%100)
		if err != nil {
			if !errors.Is(err, ErrTree) || tree != nil {
				t.Fatalf("%v, %v", tree, err)
			}
			return
		}
		again, err := ParseTree(tree.String(), tree.Size())
		if err != nil || !reflect.DeepEqual(tree, again) || again.Digest() != tree.Digest() {
			t.Fatalf("%q became %q, %v", text, tree, err)
		}
	})
}
