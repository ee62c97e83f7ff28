//go:build !purego

#include "textflag.h"
#include "loop_amd64.h"

// Conversions between f32 and f16 or bf16: eight elements at a time, 32 bytes of
// f32 and 16 of the other.

#define WIDE(CALC)   KERNEL(CALC, VMOVDQU, Y0, Y14, 32, 16, 2, 1, 16)
#define NARROW(CALC) KERNEL(CALC, VMOVDQU, X0, X14, 16, 32, 1, 2, 16)

#define F16_WIDEN(D, S, R) \
	VCVTPH2PS S, R \
	CANON32(R)

#define BF16_WIDEN(D, S, R) \
	VPMOVZXWD S, R   \
	VPSLLD $16, R, R \
	CANON32(R)

TEXT ·f16Widen(SB), NOSPLIT, $0-24
	NAN32
	WIDE(F16_WIDEN)

TEXT ·bf16Widen(SB), NOSPLIT, $0-24
	NAN32
	WIDE(BF16_WIDEN)

#define F16_ROUND(D, S, R) \
	VMOVUPS S, Y1 \
	CANON32(Y1)   \
	VCVTPS2PH $0, Y1, R

// Adds 0x7fff (Y11) and the lowest bit that stays, keeps the upper halves, and
// packs the 32-bit words to 16 bits.
#define BF16_ROUND(D, S, R) \
	VMOVUPS S, Y1        \
	CANON32(Y1)          \
	VPSRLD $16, Y1, Y2   \
	VPAND  Y10, Y2, Y2   \
	VPADDD Y11, Y1, Y1   \
	VPADDD Y2, Y1, Y1    \
	VPSRLD $16, Y1, Y1   \
	VEXTRACTI128 $1, Y1, X2 \
	VPACKUSDW X2, X1, R

TEXT ·f16Round(SB), NOSPLIT, $0-24
	NAN32
	NARROW(F16_ROUND)

TEXT ·bf16Round(SB), NOSPLIT, $0-24
	NAN32
	SPLAT32(0x7fff, X11, Y11)
	SPLAT32(1, X10, Y10)
	NARROW(BF16_ROUND)
