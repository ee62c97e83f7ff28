package allcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/reduce"
)

// Types and operators have the same values as in package reduce, which ranks send to each other.
func TestValuesMatchReduce(t *testing.T) {
	for mine, theirs := range map[DataType]reduce.Type{
		Float32: reduce.F32, Float64: reduce.F64, Float16: reduce.F16, BFloat16: reduce.BF16,
		Int8: reduce.I8, Int16: reduce.I16, Int32: reduce.I32, Int64: reduce.I64,
		Uint8: reduce.U8, Uint16: reduce.U16, Uint32: reduce.U32, Uint64: reduce.U64,
	} {
		if uint8(mine) != uint8(theirs) {
			t.Errorf("%v is %v", mine, theirs)
		}
	}
	for mine, theirs := range map[ReduceOp]reduce.Op{
		Sum: reduce.Sum, Average: reduce.Avg, Min: reduce.Min, Max: reduce.Max, Product: reduce.Prod,
	} {
		if uint8(mine) != uint8(theirs) {
			t.Errorf("%v is %v", mine, theirs)
		}
	}
}

func TestAlgorithms(t *testing.T) {
	for _, op := range []string{"broadcast", "allgather"} {
		if !slices.Contains(Algorithms(op), engine.Multicast) {
			t.Errorf("%s: %v", op, Algorithms(op))
		}
	}
	if list := Algorithms("allreduce"); len(list) == 0 || slices.Contains(list, engine.Multicast) {
		t.Errorf("allreduce: %v", list)
	}
	if list := Algorithms("gossip"); list != nil {
		t.Errorf("gossip: %v", list)
	}
}

func TestTypeOf(t *testing.T) {
	type celsius float32
	type kind uint16
	for _, tt := range []struct{ got, want DataType }{
		{TypeOf[float32](), Float32},
		{TypeOf[float64](), Float64},
		{TypeOf[celsius](), Float32},
		{TypeOf[int8](), Int8},
		{TypeOf[int16](), Int16},
		{TypeOf[int32](), Int32},
		{TypeOf[int64](), Int64},
		{TypeOf[uint8](), Uint8},
		{TypeOf[kind](), Uint16},
		{TypeOf[uint32](), Uint32},
		{TypeOf[uint64](), Uint64},
	} {
		if tt.got != tt.want {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}
