package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	maxNumber = 1 << 20 // hosts, and any other number of a spec
	maxCables = 1 << 22 // 128 MiB of Links; the largest sensible fat-trees fit
)

// SpecError reports an invalid spec of a topology.
type SpecError struct {
	Spec   string
	Reason string
}

func (e *SpecError) Error() string { return fmt.Sprintf("topology %q: %s", e.Spec, e.Reason) }

type kind uint8

const (
	star kind = iota
	fatTree
	fatTree3
)

// forms is the syntax of each kind.
var forms = [...]struct {
	name    string
	args    []string
	example string
}{
	star:     {"star", []string{"HOSTS"}, "star:8"},
	fatTree:  {"fat-tree", []string{"HOSTS", "LEAVES", "SPINES"}, "fat-tree:188,12,6"},
	fatTree3: {"fat-tree3", []string{"HOSTS", "RADIX"}, "fat-tree3:1024,32"},
}

// usage returns a kind's form and an example.
func (k kind) usage() string {
	f := forms[k]
	return fmt.Sprintf("%s:%s (for example %s)", f.name, strings.Join(f.args, ","), f.example)
}

// Parse builds the network that spec describes: "star:HOSTS",
// "fat-tree:HOSTS,LEAVES,SPINES" or "fat-tree3:HOSTS,RADIX". Its error is a
// *SpecError.
func Parse(spec string) (*Graph, error) {
	name, hosts, s, err := parseShape(spec)
	if err != nil {
		return nil, &SpecError{Spec: spec, Reason: err.Error()}
	}
	return build(name, inOrder(hosts), s), nil
}

// parseShape is Parse without building the graph, which takes memory.
func parseShape(spec string) (name string, hosts int, s shape, err error) {
	k, args, err := parseKind(spec)
	if err != nil {
		return "", 0, s, err
	}
	n, err := parseNumbers(k, args)
	if err != nil {
		return "", 0, s, err
	}
	hosts = n[0]
	switch k {
	case star:
		s = starShape(hosts)
	case fatTree:
		if n[1] > hosts {
			return "", 0, s, fmt.Errorf("%d leaves for %d hosts; there must not be more leaves than hosts", n[1], hosts)
		}
		s = fatTreeShape(hosts, n[1], n[2])
	case fatTree3:
		radix := int64(n[1]) // its cube needs 64 bits
		if radix%2 != 0 {
			return "", 0, s, fmt.Errorf("radix %d is odd; half of a switch's ports go up, half down", radix)
		}
		if most := radix * radix * radix / 4; int64(hosts) > most {
			return "", 0, s, fmt.Errorf("%d hosts are too many for radix %d; at most %d (RADIX^3/4) fit", hosts, radix, most)
		}
		s = fatTree3Shape(hosts, n[1])
	}
	if c := int64(hosts) + s.cables(); c > maxCables {
		return "", 0, s, fmt.Errorf("it would take %d cables; at most %d are supported", c, maxCables)
	}
	return canonical(k, n), hosts, s, nil
}

func parseKind(spec string) (kind, string, error) {
	name, args, _ := strings.Cut(spec, ":")
	all := make([]string, len(forms))
	for k, f := range forms {
		if f.name == name {
			return kind(k), args, nil
		}
		all[k] = kind(k).usage()
	}
	return 0, "", fmt.Errorf("unknown kind %q; valid are %s", name, strings.Join(all, ", "))
}

func parseNumbers(k kind, args string) ([]int, error) {
	names := forms[k].args
	var fields []string
	if args != "" {
		fields = strings.Split(args, ",")
	}
	switch {
	case len(fields) < len(names):
		return nil, fmt.Errorf("too few numbers; the form is %s", k.usage())
	case len(fields) > len(names):
		return nil, fmt.Errorf("too many numbers; the form is %s", k.usage())
	}
	numbers := make([]int, len(names))
	for i, f := range fields {
		n, err := strconv.Atoi(f) // out of range, n is the nearest int
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return nil, fmt.Errorf("%s is %q, not a whole number; the form is %s", names[i], f, k.usage())
		case n < 1:
			return nil, fmt.Errorf("%s is %s; it must be at least 1", names[i], f)
		case n > maxNumber:
			return nil, fmt.Errorf("%s is %s; at most %d is supported", names[i], f, maxNumber)
		}
		numbers[i] = n
	}
	return numbers, nil
}

func canonical(k kind, numbers []int) string {
	text := make([]string, len(numbers))
	for i, n := range numbers {
		text[i] = strconv.Itoa(n)
	}
	return forms[k].name + ":" + strings.Join(text, ",")
}
