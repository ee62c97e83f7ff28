//go:build !purego

#include "textflag.h"
#include "loop_amd64.h"

// One instruction does it. Wrapping sums and products do not know signs.
#define OP1(OP, D, S, R) \
	VMOVDQU D, R \
	OP S, R, R

#define ADD8(D, S, R)  OP1(VPADDB, D, S, R)
#define ADD16(D, S, R) OP1(VPADDW, D, S, R)
#define ADD32I(D, S, R) OP1(VPADDD, D, S, R)
#define ADD64(D, S, R) OP1(VPADDQ, D, S, R)
#define MUL16(D, S, R) OP1(VPMULLW, D, S, R)
#define MUL32I(D, S, R) OP1(VPMULLD, D, S, R)

TEXT ·int8Sum(SB), NOSPLIT, $0-24
	FULL(ADD8)

TEXT ·int16Sum(SB), NOSPLIT, $0-24
	FULL(ADD16)

TEXT ·int32Sum(SB), NOSPLIT, $0-24
	FULL(ADD32I)

TEXT ·int64Sum(SB), NOSPLIT, $0-24
	FULL(ADD64)

TEXT ·int16Prod(SB), NOSPLIT, $0-24
	FULL(MUL16)

TEXT ·int32Prod(SB), NOSPLIT, $0-24
	FULL(MUL32I)

#define BIT_AND(D, S, R) OP1(VPAND, D, S, R)
#define BIT_OR(D, S, R)  OP1(VPOR, D, S, R)
#define BIT_XOR(D, S, R) OP1(VPXOR, D, S, R)

TEXT ·bitAnd(SB), NOSPLIT, $0-24
	FULL(BIT_AND)

TEXT ·bitOr(SB), NOSPLIT, $0-24
	FULL(BIT_OR)

TEXT ·bitXor(SB), NOSPLIT, $0-24
	FULL(BIT_XOR)

// Bool: the minimum of a byte and 1 (Y12) is its truth value. The minimum of two
// bytes is true if both are.
#define BOOL_ONE SPLAT32(0x01010101, X12, Y12)

#define BOOL_AND(D, S, R) \
	OP1(VPMINUB, D, S, R) \
	VPMINUB Y12, R, R

#define BOOL_OR(D, S, R) \
	OP1(VPOR, D, S, R) \
	VPMINUB Y12, R, R

#define BOOL_XOR(D, S, R) \
	VPMINUB D, Y12, Y1 \
	VPMINUB S, Y12, R  \
	VPXOR   Y1, R, R

TEXT ·boolAnd(SB), NOSPLIT, $0-24
	BOOL_ONE
	FULL(BOOL_AND)

TEXT ·boolOr(SB), NOSPLIT, $0-24
	BOOL_ONE
	FULL(BOOL_OR)

TEXT ·boolXor(SB), NOSPLIT, $0-24
	BOOL_ONE
	FULL(BOOL_XOR)

// There is no product of bytes: that of 16 bits is right in its lower byte, for
// the even bytes as they are and for the odd ones shifted down. Y12 masks the even.
#define MUL8(D, S, R) \
	VMOVDQU D, Y1       \
	VMOVDQU S, Y2       \
	VPMULLW Y2, Y1, R   \
	VPSRLW  $8, Y1, Y1  \
	VPSRLW  $8, Y2, Y2  \
	VPMULLW Y2, Y1, Y1  \
	VPSLLW  $8, Y1, Y1  \
	VPAND   Y12, R, R   \
	VPOR    Y1, R, R

TEXT ·int8Prod(SB), NOSPLIT, $0-24
	SPLAT32(0x00ff00ff, X12, Y12)
	FULL(MUL8)

#define MINI8(D, S, R)  OP1(VPMINSB, D, S, R)
#define MAXI8(D, S, R)  OP1(VPMAXSB, D, S, R)
#define MINI16(D, S, R) OP1(VPMINSW, D, S, R)
#define MAXI16(D, S, R) OP1(VPMAXSW, D, S, R)
#define MINI32(D, S, R) OP1(VPMINSD, D, S, R)
#define MAXI32(D, S, R) OP1(VPMAXSD, D, S, R)
#define MINU8(D, S, R)  OP1(VPMINUB, D, S, R)
#define MAXU8(D, S, R)  OP1(VPMAXUB, D, S, R)
#define MINU16(D, S, R) OP1(VPMINUW, D, S, R)
#define MAXU16(D, S, R) OP1(VPMAXUW, D, S, R)
#define MINU32(D, S, R) OP1(VPMINUD, D, S, R)
#define MAXU32(D, S, R) OP1(VPMAXUD, D, S, R)

TEXT ·i8Min(SB), NOSPLIT, $0-24
	FULL(MINI8)

TEXT ·i8Max(SB), NOSPLIT, $0-24
	FULL(MAXI8)

TEXT ·i16Min(SB), NOSPLIT, $0-24
	FULL(MINI16)

TEXT ·i16Max(SB), NOSPLIT, $0-24
	FULL(MAXI16)

TEXT ·i32Min(SB), NOSPLIT, $0-24
	FULL(MINI32)

TEXT ·i32Max(SB), NOSPLIT, $0-24
	FULL(MAXI32)

TEXT ·u8Min(SB), NOSPLIT, $0-24
	FULL(MINU8)

TEXT ·u8Max(SB), NOSPLIT, $0-24
	FULL(MAXU8)

TEXT ·u16Min(SB), NOSPLIT, $0-24
	FULL(MINU16)

TEXT ·u16Max(SB), NOSPLIT, $0-24
	FULL(MAXU16)

TEXT ·u32Min(SB), NOSPLIT, $0-24
	FULL(MINU32)

TEXT ·u32Max(SB), NOSPLIT, $0-24
	FULL(MAXU32)

// 64 bits: compare, signed, and choose. Unsigned numbers compare as signed ones
// when both have their sign bit (Y12) flipped.
#define GREATER64(D, S) \
	VMOVDQU D, Y1 \
	VMOVDQU S, Y2 \
	VPCMPGTQ Y2, Y1, Y3

#define ABOVE64(D, S) \
	VMOVDQU D, Y1      \
	VMOVDQU S, Y2      \
	VPXOR Y12, Y1, Y3  \
	VPXOR Y12, Y2, Y4  \
	VPCMPGTQ Y4, Y3, Y3

#define MINI64(D, S, R) \
	GREATER64(D, S) \
	VBLENDVPD Y3, Y2, Y1, R

#define MAXI64(D, S, R) \
	GREATER64(D, S) \
	VBLENDVPD Y3, Y1, Y2, R

#define MINU64(D, S, R) \
	ABOVE64(D, S) \
	VBLENDVPD Y3, Y2, Y1, R

#define MAXU64(D, S, R) \
	ABOVE64(D, S) \
	VBLENDVPD Y3, Y1, Y2, R

TEXT ·i64Min(SB), NOSPLIT, $0-24
	FULL(MINI64)

TEXT ·i64Max(SB), NOSPLIT, $0-24
	FULL(MAXI64)

TEXT ·u64Min(SB), NOSPLIT, $0-24
	SPLAT64(0x8000000000000000, X12, Y12)
	FULL(MINU64)

TEXT ·u64Max(SB), NOSPLIT, $0-24
	SPLAT64(0x8000000000000000, X12, Y12)
	FULL(MAXU64)
