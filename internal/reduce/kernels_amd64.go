//go:build !purego

package reduce

// Assembly kernels. loop_amd64.h describes what they share. n is in bytes, of the narrower side where
// the sides differ, and at least 32.

// intoKernels are the kernels of Into. AVX2 has no 64-bit product, and one multiplication per cycle in Go
// is as fast as memory anyway.
var intoKernels = [numTypes][numOps]func(dst, src *byte, n int){
	F32:  {Sum: f32Sum, Avg: f32Sum, Min: f32Min, Max: f32Max, Prod: f32Prod, PremulSum: f32Sum},
	F64:  {Sum: f64Sum, Avg: f64Sum, Min: f64Min, Max: f64Max, Prod: f64Prod, PremulSum: f64Sum},
	F16:  {Sum: f16Sum, Avg: f16Sum, Min: f16Min, Max: f16Max, Prod: f16Prod, PremulSum: f16Sum},
	BF16: {Sum: bf16Sum, Avg: bf16Sum, Min: bf16Min, Max: bf16Max, Prod: bf16Prod, PremulSum: bf16Sum},
	I8:   {Sum: int8Sum, Avg: int8Sum, Min: i8Min, Max: i8Max, Prod: int8Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	I16:  {Sum: int16Sum, Avg: int16Sum, Min: i16Min, Max: i16Max, Prod: int16Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	I32:  {Sum: int32Sum, Avg: int32Sum, Min: i32Min, Max: i32Max, Prod: int32Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	I64:  {Sum: int64Sum, Avg: int64Sum, Min: i64Min, Max: i64Max, And: bitAnd, Or: bitOr, Xor: bitXor},
	U8:   {Sum: int8Sum, Avg: int8Sum, Min: u8Min, Max: u8Max, Prod: int8Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	U16:  {Sum: int16Sum, Avg: int16Sum, Min: u16Min, Max: u16Max, Prod: int16Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	U32:  {Sum: int32Sum, Avg: int32Sum, Min: u32Min, Max: u32Max, Prod: int32Prod, And: bitAnd, Or: bitOr, Xor: bitXor},
	U64:  {Sum: int64Sum, Avg: int64Sum, Min: u64Min, Max: u64Max, And: bitAnd, Or: bitOr, Xor: bitXor},
	Bool: {And: boolAnd, Or: boolOr, Xor: boolXor},
}

//go:noescape
func f32Sum(dst, src *byte, n int)

//go:noescape
func f32Min(dst, src *byte, n int)

//go:noescape
func f32Max(dst, src *byte, n int)

//go:noescape
func f32Prod(dst, src *byte, n int)

//go:noescape
func f64Sum(dst, src *byte, n int)

//go:noescape
func f64Min(dst, src *byte, n int)

//go:noescape
func f64Max(dst, src *byte, n int)

//go:noescape
func f64Prod(dst, src *byte, n int)

//go:noescape
func f16Sum(dst, src *byte, n int)

//go:noescape
func f16Min(dst, src *byte, n int)

//go:noescape
func f16Max(dst, src *byte, n int)

//go:noescape
func f16Prod(dst, src *byte, n int)

//go:noescape
func bf16Sum(dst, src *byte, n int)

//go:noescape
func bf16Min(dst, src *byte, n int)

//go:noescape
func bf16Max(dst, src *byte, n int)

//go:noescape
func bf16Prod(dst, src *byte, n int)

//go:noescape
func int8Sum(dst, src *byte, n int)

//go:noescape
func int16Sum(dst, src *byte, n int)

//go:noescape
func int32Sum(dst, src *byte, n int)

//go:noescape
func int64Sum(dst, src *byte, n int)

//go:noescape
func int8Prod(dst, src *byte, n int)

//go:noescape
func int16Prod(dst, src *byte, n int)

//go:noescape
func int32Prod(dst, src *byte, n int)

//go:noescape
func i8Min(dst, src *byte, n int)

//go:noescape
func i8Max(dst, src *byte, n int)

//go:noescape
func i16Min(dst, src *byte, n int)

//go:noescape
func i16Max(dst, src *byte, n int)

//go:noescape
func i32Min(dst, src *byte, n int)

//go:noescape
func i32Max(dst, src *byte, n int)

//go:noescape
func i64Min(dst, src *byte, n int)

//go:noescape
func i64Max(dst, src *byte, n int)

//go:noescape
func u8Min(dst, src *byte, n int)

//go:noescape
func u8Max(dst, src *byte, n int)

//go:noescape
func u16Min(dst, src *byte, n int)

//go:noescape
func u16Max(dst, src *byte, n int)

//go:noescape
func u32Min(dst, src *byte, n int)

//go:noescape
func u32Max(dst, src *byte, n int)

//go:noescape
func u64Min(dst, src *byte, n int)

//go:noescape
func u64Max(dst, src *byte, n int)

//go:noescape
func bitAnd(dst, src *byte, n int)

//go:noescape
func bitOr(dst, src *byte, n int)

//go:noescape
func bitXor(dst, src *byte, n int)

//go:noescape
func boolAnd(dst, src *byte, n int)

//go:noescape
func boolOr(dst, src *byte, n int)

//go:noescape
func boolXor(dst, src *byte, n int)

//go:noescape
func f16Widen(dst *float32, src *byte, n int)

//go:noescape
func bf16Widen(dst *float32, src *byte, n int)

//go:noescape
func f16Round(dst *byte, src *float32, n int)

//go:noescape
func bf16Round(dst *byte, src *float32, n int)

//go:noescape
func f32Div(dst *byte, src *float32, n int)

//go:noescape
func f64Div(dst *byte, src *float64, n int)

//go:noescape
func f16Div(dst *byte, src *float32, n int)

//go:noescape
func bf16Div(dst *byte, src *float32, n int)

//go:noescape
func f32Scale(dst, src *byte, n int, factor *float32)

//go:noescape
func f64Scale(dst, src *byte, n int, factor *float64)

//go:noescape
func f16Scale(dst, src *byte, n int, factor *float32)

//go:noescape
func bf16Scale(dst, src *byte, n int, factor *float32)
