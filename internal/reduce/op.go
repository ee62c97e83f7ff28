package reduce

import (
	"fmt"
	"strings"
)

// Op is the operation that combines two elements.
type Op uint8

// Operations. Avg combines like Sum, and divides in Finish.
const (
	Sum Op = iota
	Avg
	Min
	Max
	Prod

	numOps = iota
)

var ops = [numOps]struct{ name, long string }{
	Sum: {"sum", "sum"}, Avg: {"avg", "average"}, Min: {"min", "minimum"}, Max: {"max", "maximum"},
	Prod: {"prod", "product"},
}

func (op Op) valid() bool { return op < numOps }

// String returns the short name, which ParseOp accepts.
func (op Op) String() string {
	if !op.valid() {
		return fmt.Sprintf("Op(%d)", uint8(op))
	}
	return ops[op].name
}

// ParseOp parses the name of an operation: sum, avg, min, max or prod, or the long form (average,
// minimum, maximum, product).
func ParseOp(s string) (Op, error) {
	names := make([]string, numOps)
	for op := range ops {
		if ops[op].name == s || ops[op].long == s {
			return Op(op), nil
		}
		names[op] = ops[op].name
	}
	return 0, fmt.Errorf("%w: %q: want one of %s", ErrOp, s, strings.Join(names, ", "))
}
