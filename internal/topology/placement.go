package topology

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A placement maps ranks to hosts: rank r runs on host placement[r]. [Graph.Place] applies it.

// PlacementForms is the syntax of a placement.
const PlacementForms = "order, random:SEED, stride:N, or a file with one host number per line"

// ParsePlacement returns the placement that text describes, for a network of that many hosts. Function read
// reads a file; it is called if text is none of the other forms.
func ParsePlacement(text string, hosts int, read func(name string) ([]byte, error)) ([]int, error) {
	name, arg, colon := strings.Cut(text, ":")
	switch name {
	case "order":
		if colon {
			return nil, fmt.Errorf("placement %q: order takes no number", text)
		}
		return inOrder(hosts), nil
	case "random":
		seed, err := strconv.ParseUint(arg, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("placement %q: want random:SEED with a whole number, such as random:1", text)
		}
		return rand.New(rand.NewPCG(seed, uint64(hosts))).Perm(hosts), nil
	case "stride":
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > hosts {
			return nil, fmt.Errorf("placement %q: want stride:N with N from 1 to the number of hosts, %d", text, hosts)
		}
		return strided(hosts, n), nil
	}
	data, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("placement %q: want %s: %w", text, PlacementForms, err)
	}
	placement, err := parseHosts(string(data), hosts)
	if err != nil {
		return nil, fmt.Errorf("placement %s: %w", text, err)
	}
	return placement, nil
}

// inOrder puts rank i on host i.
func inOrder(hosts int) []int { return strided(hosts, 1) }

// strided puts consecutive ranks n hosts apart: on hosts 0, n, 2n, ..., then on 1, n+1, ...
func strided(hosts, n int) []int {
	list := make([]int, 0, hosts)
	for first := range n {
		for h := first; h < hosts; h += n {
			list = append(list, h)
		}
	}
	return list
}

// parseHosts reads one host number per line. Blank lines and lines that begin with # are left out.
func parseHosts(text string, hosts int) ([]int, error) {
	var list []int
	line := 0
	for field := range strings.Lines(text) {
		line++
		field = strings.TrimSpace(field)
		if field == "" || field[0] == '#' {
			continue
		}
		h, err := strconv.Atoi(field)
		if err != nil || h < 0 || h >= hosts {
			return nil, fmt.Errorf("line %d is %.20q; want a host number from 0 to %d", line, field, hosts-1)
		}
		list = append(list, h)
	}
	return list, checkPlacement(list, hosts)
}

func checkPlacement(placement []int, hosts int) error {
	if len(placement) == 0 {
		return errors.New("there is no host in it")
	}
	rank := make(map[int]int)
	for r, h := range placement {
		if h < 0 || h >= hosts {
			return fmt.Errorf("rank %d is on host %d; want a host number from 0 to %d", r, h, hosts-1)
		}
		if other, taken := rank[h]; taken {
			return fmt.Errorf("ranks %d and %d are both on host %d; a host has one rank", other, r, h)
		}
		rank[h] = r
	}
	return nil
}

// Place returns the network with its hosts numbered by rank: host r of the result is host placement[r] of g, and
// keeps its name. Hosts without a rank are left out.
func (g *Graph) Place(placement []int) (*Graph, error) {
	if err := checkPlacement(placement, g.Hosts); err != nil {
		return nil, err
	}
	at := make([]int, len(placement))
	for r, h := range placement {
		at[r] = g.at[h]
	}
	return g.rebuild(at, g.shape), nil
}

// rebuild returns g with other positions of hosts or another shape.
func (g *Graph) rebuild(at []int, s shape) *Graph {
	n := build(g.Name, at, s)
	n.hashed, n.seed = g.hashed, g.seed
	return n
}
