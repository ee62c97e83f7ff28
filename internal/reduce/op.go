package reduce

import (
	"fmt"
	"slices"
	"strings"
)

// Op is the operation that combines two elements. The zero value is invalid.
type Op uint8

// Operations. Avg combines like Sum, and divides in Finish. PremulSum also combines like Sum: every rank
// has multiplied its input with Scale. And, Or and Xor work on the bits of integers, and on the truth
// values of Bool.
const (
	Sum Op = iota + 1
	Avg
	Min
	Max
	Prod
	And
	Or
	Xor
	PremulSum

	numOps = iota + 1
)

// ops lists the names of each operation: the short name, then aliases.
var ops = [numOps][]string{
	Sum: {"sum"}, Avg: {"avg", "average"}, Min: {"min", "minimum"}, Max: {"max", "maximum"},
	Prod: {"prod", "product"}, And: {"and", "band"}, Or: {"or", "bor"}, Xor: {"xor", "bxor"},
	PremulSum: {"premul-sum", "premul_sum", "premultiplied-sum"},
}

func (op Op) valid() bool { return op != 0 && op < numOps }

func (op Op) isLogic() bool { return op == And || op == Or || op == Xor }

// String returns the short name, which ParseOp accepts.
func (op Op) String() string {
	if !op.valid() {
		return fmt.Sprintf("Op(%d)", uint8(op))
	}
	return ops[op][0]
}

// ParseOp parses the name of an operation: sum, avg, min, max, prod, and, or, xor or premul-sum. It also
// accepts the long forms (average, minimum, maximum, product, premultiplied-sum), the names of MPI (band,
// bor, bxor) and that of PyTorch (premul_sum).
func ParseOp(s string) (Op, error) {
	i, err := parseName(s, ops[:])
	if err != nil {
		return 0, fmt.Errorf("%w %w", ErrOp, err)
	}
	return Op(i), nil
}

// parseName returns the index of the entry that has the given name. Entry 0 is unused.
func parseName(s string, entries [][]string) (int, error) {
	var valid []string
	for i, names := range entries[1:] {
		if slices.Contains(names, s) {
			return i + 1, nil
		}
		valid = append(valid, names[0])
	}
	return 0, fmt.Errorf("%q: want one of %s", s, strings.Join(valid, ", "))
}
