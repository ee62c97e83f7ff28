package inc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrTree marks a tree of aggregators that cannot be used.
var ErrTree = errors.New("bad tree of aggregators")

// maxRanks is the largest number of ranks: a Header has 16 bits for the owner. Every child of an aggregator is a
// rank or has one below it, so positions of children fit 16 bits as well.
const maxRanks = 1<<16 - 1

// MaxDepth is the largest depth of a tree. Networks have few levels, and the cost of a tree grows with its depth.
const MaxDepth = 16

// maxNodes is the largest number of aggregators. A tree in which each aggregator has a rank of its own or two children
// has fewer than two per rank; the rest is for a few that only pass sums on.
func maxNodes(size int) int { return 2*size + MaxDepth }

// ParseTree parses the value of ALLCAST_AGGREGATORS for a job of size ranks. Aggregators are separated by
// semicolons, and each has the form
//
//	HOST:PORT[=RANKS][>PARENT]
//
// RANKS are the ranks that it serves, such as 0-3,8. PARENT is the HOST:PORT of its parent; the aggregator at
// the top has none. Spaces around the parts are ignored. Every rank has exactly one aggregator. There are at most
// MaxDepth aggregators on a path to the top, and at most 16 more than two per rank.
func ParseTree(text string, size int) (*Tree, error) {
	if size < 1 || size > maxRanks {
		return nil, fmt.Errorf("%w: %d ranks: must be 1 to %d", ErrTree, size, maxRanks)
	}
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("%w: it is empty: name at least one aggregator, such as HOST:PORT=0-%d", ErrTree, size-1)
	}
	if n := strings.Count(text, ";") + 1; n > maxNodes(size) {
		return nil, fmt.Errorf("%w: %d aggregators for %d ranks: at most %d are allowed", ErrTree, n, size, maxNodes(size))
	}
	p := treeParser{
		tree: &Tree{servers: make([]server, size)}, index: make(map[string]int),
	}
	for rank := range p.tree.servers {
		p.tree.servers[rank].node = -1
	}
	for i, entry := range strings.Split(text, ";") {
		if err := p.entry(strings.TrimSpace(entry)); err != nil {
			return nil, fmt.Errorf("%w: aggregator %d: %w", ErrTree, i+1, err)
		}
	}
	if err := p.link(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTree, err)
	}
	return p.tree, nil
}

// treeParser builds a Tree from its text.
type treeParser struct {
	tree    *Tree
	index   map[string]int // address -> index in Nodes
	parents []string       // by node: address of its parent; "" for none
}

// entry parses one aggregator.
func (p *treeParser) entry(text string) error {
	if text == "" {
		return errors.New("it is empty: remove the semicolon")
	}
	rest, parent, hasParent := strings.Cut(text, ">")
	addr, ranks, hasRanks := strings.Cut(rest, "=")
	addr, parent = strings.TrimSpace(addr), strings.TrimSpace(parent)
	if err := checkAddr(addr); err != nil {
		return err
	}
	if hasParent {
		if err := checkAddr(parent); err != nil {
			return fmt.Errorf("parent of %s: %w", addr, err)
		}
	}
	node := len(p.tree.Nodes)
	if _, ok := p.index[addr]; ok {
		return fmt.Errorf("the address %s occurs twice", addr)
	}
	p.index[addr] = node
	p.tree.Nodes = append(p.tree.Nodes, TreeNode{Addr: addr, Parent: -1})
	p.parents = append(p.parents, parent)
	if !hasRanks {
		return nil
	}
	for part := range strings.SplitSeq(ranks, ",") {
		if err := p.ranks(node, strings.TrimSpace(part)); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	slices.Sort(p.tree.Nodes[node].Ranks)
	return nil
}

// ranks parses a rank or a range of ranks that an aggregator serves.
func (p *treeParser) ranks(node int, text string) error {
	first, last, isRange := strings.Cut(text, "-")
	lo, err := p.rank(first)
	if err != nil {
		return err
	}
	hi := lo
	if isRange {
		if hi, err = p.rank(last); err != nil {
			return err
		}
	}
	if hi < lo {
		return fmt.Errorf("ranks %s: the first is larger than the last", text)
	}
	for rank := lo; rank <= hi; rank++ {
		s := &p.tree.servers[rank]
		if s.node >= 0 {
			return fmt.Errorf("rank %d already belongs to %s", rank, p.tree.Nodes[s.node].Addr)
		}
		s.node = node
		p.tree.Nodes[node].Ranks = append(p.tree.Nodes[node].Ranks, rank)
	}
	return nil
}

func (p *treeParser) rank(text string) (int, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rank: write ranks as in 0-3,8", text)
	}
	if size := p.tree.Size(); int(n) >= size {
		return 0, fmt.Errorf("rank %d: the ranks of this job are 0 to %d", n, size-1)
	}
	return int(n), nil
}

// link connects the aggregators and checks that they are a tree of all ranks.
func (p *treeParser) link() error {
	t, top := p.tree, -1
	for node, addr := range p.parents {
		switch parent, ok := p.index[addr]; {
		case addr == "" && top >= 0:
			return fmt.Errorf("both %s and %s have no parent: exactly one must be at the top",
				t.Nodes[top].Addr, t.Nodes[node].Addr)
		case addr == "":
			top = node
		case !ok:
			return fmt.Errorf("the parent of %s, %s, is not in the list", t.Nodes[node].Addr, addr)
		default:
			t.Nodes[node].Parent = parent
		}
	}
	for rank, s := range t.servers {
		if s.node < 0 {
			return fmt.Errorf("rank %d has no aggregator: each of the ranks 0 to %d needs one", rank, t.Size()-1)
		}
	}
	if top < 0 {
		return fmt.Errorf("every aggregator has a parent, so %s is above itself: one must be at the top", t.Nodes[0].Addr)
	}
	t.Top = top
	p.adopt()
	return p.check()
}

// adopt lists the children of all aggregators: first the ranks.
func (p *treeParser) adopt() {
	t := p.tree
	t.positions = make([]int, len(t.Nodes))
	for node := range t.Nodes {
		t.positions[node] = -1
		for _, rank := range t.Nodes[node].Ranks {
			t.servers[rank].child = len(t.Nodes[node].Children)
			t.Nodes[node].Children = append(t.Nodes[node].Children, Child{Rank: rank, Node: -1})
		}
	}
	for node := range t.Nodes {
		if parent := t.Nodes[node].Parent; parent >= 0 {
			t.positions[node] = len(t.Nodes[parent].Children)
			t.Nodes[parent].Children = append(t.Nodes[parent].Children, Child{Rank: -1, Node: node})
		}
	}
}

// check finds cycles and aggregators without purpose.
func (p *treeParser) check() error {
	t := p.tree
	t.below = make([]int, len(t.Nodes))
	level := make([]int, len(t.Nodes)) // depth of a node that was reached from the top
	level[t.Top] = 1
	order := append(make([]int, 0, len(t.Nodes)), t.Top)
	for i := 0; i < len(order); i++ {
		for _, c := range t.Nodes[order[i]].Children {
			if c.Node >= 0 {
				level[c.Node] = level[order[i]] + 1
				order = append(order, c.Node)
			}
		}
	}
	for node := range t.Nodes {
		n := &t.Nodes[node]
		switch {
		case level[node] == 0:
			return fmt.Errorf("%s is above itself: its parents form a cycle", n.Addr)
		case len(n.Children) == 0:
			return fmt.Errorf("%s serves neither ranks nor aggregators: remove it", n.Addr)
		case level[node] > MaxDepth:
			return fmt.Errorf("%s has %d aggregators above it: a path to the top has at most %d aggregators", n.Addr,
				level[node]-1, MaxDepth)
		}
	}
	for _, node := range slices.Backward(order) {
		t.below[node] += len(t.Nodes[node].Ranks)
		if parent := t.Nodes[node].Parent; parent >= 0 {
			t.below[parent] += t.below[node]
		}
		t.depth = max(t.depth, level[node])
	}
	return nil
}

// checkAddr reports what is wrong with HOST:PORT.
func checkAddr(addr string) error {
	at := strings.LastIndexByte(addr, ':')
	if at < 0 {
		return fmt.Errorf("%q has no port: write HOST:PORT", addr)
	}
	host, port := addr[:at], addr[at+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: port %q is not a number from 1 to 65535", addr, port)
	}
	inner, ipv6 := strings.CutPrefix(host, "[")
	if ipv6 {
		inner, ipv6 = strings.CutSuffix(inner, "]")
		if !ipv6 || !strings.Contains(inner, ":") {
			return fmt.Errorf("%q: only an IPv6 address stands in brackets", addr)
		}
	}
	switch {
	case inner == "":
		return fmt.Errorf("%q has no host: write HOST:PORT", addr)
	case !ipv6 && strings.Contains(inner, ":"):
		return fmt.Errorf("%q: write an IPv6 address in brackets, as in [::1]:7000", addr)
	case strings.ContainsFunc(inner, notOfHost):
		return fmt.Errorf("%q: the host has a character that no host name has", addr)
	}
	return nil
}

func notOfHost(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("[],;=>/", r) }
