//go:build !purego

#include "textflag.h"
#include "loop_amd64.h"

// f16: F16C converts eight at a time, from and to 16 bytes. The 0 of VCVTPS2PH
// is round to nearest even, whatever the thread's rounding mode.

#define F16_OP(OP, D, S, R) \
	VCVTPH2PS D, Y1      \
	VCVTPH2PS S, Y2      \
	OP(Y1, Y2, Y3)       \
	VCVTPS2PH $0, Y3, R

#define F16_ADD(D, S, R) F16_OP(ADD32, D, S, R)
#define F16_MUL(D, S, R) F16_OP(MUL32, D, S, R)
#define F16_MIN(D, S, R) F16_OP(MIN32, D, S, R)
#define F16_MAX(D, S, R) F16_OP(MAX32, D, S, R)

#define F16_DIV(D, S, R) \
	VCVTPH2PS D, Y1     \
	VDIVPS Y13, Y1, Y1  \
	CANON32(Y1)         \
	VCVTPS2PH $0, Y1, R

#define F16_SCALE(D, S, R) \
	VCVTPH2PS S, Y1     \
	VMULPS Y13, Y1, Y1  \
	CANON32(Y1)         \
	VCVTPS2PH $0, Y1, R

#define F16_KERNEL(CALC) \
	NAN32 \
	KERNEL(CALC, VMOVDQU, X0, X14, 16, 16, 1, 1, 16)

TEXT ·f16Sum(SB), NOSPLIT, $0-24
	F16_KERNEL(F16_ADD)

TEXT ·f16Prod(SB), NOSPLIT, $0-24
	F16_KERNEL(F16_MUL)

TEXT ·f16Min(SB), NOSPLIT, $0-24
	F16_KERNEL(F16_MIN)

TEXT ·f16Max(SB), NOSPLIT, $0-24
	F16_KERNEL(F16_MAX)

TEXT ·f16Div(SB), NOSPLIT, $0-24
	NAN32
	MOVQ src+8(FP), SI
	VBROADCASTSS (SI), Y13
	KERNEL(F16_DIV, VMOVDQU, X0, X14, 16, 0, 1, 1, 16)

TEXT ·f16Scale(SB), NOSPLIT, $0-32
	MOVQ factor+24(FP), AX
	VBROADCASTSS (AX), Y13
	F16_KERNEL(F16_SCALE)

// bf16: 16 at a time. In each 32 bits, the upper half is an f32 once the lower
// is masked off (Y12), and so is the lower once shifted up.

#define BF16_CONSTANTS \
	NAN32                            \
	SPLAT32(0xffff0000, X12, Y12)    \
	SPLAT32(0x7fff, X11, Y11)        \
	SPLAT32(1, X10, Y10)

// Adds what makes a truncation to the upper half a rounding to nearest even:
// 0x7fff and the lowest bit that stays. Uses Y7.
#define BF16_BIAS(R) \
	VPSRLD $16, R, Y7   \
	VPAND  Y10, Y7, Y7  \
	VPADDD Y11, R, R    \
	VPADDD Y7, R, R

// R = the bf16 of EVEN in the lower and of ODD in the upper halves.
#define BF16_PACK(EVEN, ODD, R) \
	BF16_BIAS(EVEN)             \
	BF16_BIAS(ODD)              \
	VPSRLD $16, EVEN, EVEN      \
	VPBLENDW $0xaa, ODD, EVEN, R

#define BF16_OP(OP, D, S, R) \
	VMOVDQU D, Y1       \
	VMOVDQU S, Y2       \
	VPSLLD $16, Y1, Y3  \
	VPSLLD $16, Y2, Y4  \
	OP(Y3, Y4, Y5)      \
	VPAND  Y12, Y1, Y1  \
	VPAND  Y12, Y2, Y2  \
	OP(Y1, Y2, Y3)      \
	BF16_PACK(Y5, Y3, R)

#define BF16_ADD(D, S, R) BF16_OP(ADD32, D, S, R)
#define BF16_MUL(D, S, R) BF16_OP(MUL32, D, S, R)
#define BF16_MIN(D, S, R) BF16_OP(MIN32, D, S, R)
#define BF16_MAX(D, S, R) BF16_OP(MAX32, D, S, R)

#define BF16_DIV(D, S, R) \
	VMOVDQU D, Y1       \
	VPSLLD $16, Y1, Y2  \
	VPAND  Y12, Y1, Y1  \
	VDIVPS Y13, Y2, Y2  \
	VDIVPS Y13, Y1, Y1  \
	CANON32(Y2)         \
	CANON32(Y1)         \
	BF16_PACK(Y2, Y1, R)

#define BF16_SCALE(D, S, R) \
	VMOVDQU S, Y1       \
	VPSLLD $16, Y1, Y2  \
	VPAND  Y12, Y1, Y1  \
	VMULPS Y13, Y2, Y2  \
	VMULPS Y13, Y1, Y1  \
	CANON32(Y2)         \
	CANON32(Y1)         \
	BF16_PACK(Y2, Y1, R)

TEXT ·bf16Sum(SB), NOSPLIT, $0-24
	BF16_CONSTANTS
	FULL(BF16_ADD)

TEXT ·bf16Prod(SB), NOSPLIT, $0-24
	BF16_CONSTANTS
	FULL(BF16_MUL)

TEXT ·bf16Min(SB), NOSPLIT, $0-24
	BF16_CONSTANTS
	FULL(BF16_MIN)

TEXT ·bf16Max(SB), NOSPLIT, $0-24
	BF16_CONSTANTS
	FULL(BF16_MAX)

TEXT ·bf16Div(SB), NOSPLIT, $0-24
	BF16_CONSTANTS
	MOVQ src+8(FP), SI
	VBROADCASTSS (SI), Y13
	KERNEL(BF16_DIV, VMOVDQU, Y0, Y14, 32, 0, 1, 1, 32)

TEXT ·bf16Scale(SB), NOSPLIT, $0-32
	BF16_CONSTANTS
	MOVQ factor+24(FP), AX
	VBROADCASTSS (AX), Y13
	FULL(BF16_SCALE)
