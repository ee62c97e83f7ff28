package reduce

import (
	"fmt"
	"strings"
)

// Op says how two elements become one.
type Op uint8

// The operations. Avg combines as Sum does, and divides in Finish.
const (
	Sum Op = iota
	Avg
	Min
	Max
	Prod

	numOps = iota
)

var ops = [numOps]struct{ name, long string }{
	Sum: {"sum", "sum"}, Avg: {"avg", "average"}, Min: {"min", "minimum"}, Max: {"max", "maximum"}, Prod: {"prod", "product"},
}

func (op Op) valid() bool { return op < numOps }

// String returns the short name that ParseOp reads.
func (op Op) String() string {
	if !op.valid() {
		return fmt.Sprintf("Op(%d)", uint8(op))
	}
	return ops[op].name
}

// ParseOp reads an operation's name: sum, avg, min, max or prod, or the same in
// full (average, minimum, maximum, product).
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
