//go:build !purego

#include "textflag.h"
#include "loop_amd64.h"

#define F32_ADD(D, S, R) \
	VMOVUPS D, R    \
	VADDPS S, R, R

#define F32_MUL(D, S, R) \
	VMOVUPS D, R    \
	VMULPS S, R, R

#define F32_MIN(D, S, R) \
	VMOVUPS D, Y1 \
	VMOVUPS S, Y2 \
	MIN32(Y1, Y2, R)

#define F32_MAX(D, S, R) \
	VMOVUPS D, Y1 \
	VMOVUPS S, Y2 \
	MAX32(Y1, Y2, R)

// The divisor is in Y13; src is not advanced.
#define F32_DIV(D, S, R) \
	VMOVUPS D, R     \
	VDIVPS Y13, R, R \
	CANON32(R)

// The factor is in Y13.
#define F32_SCALE(D, S, R) \
	VMULPS S, Y13, R \
	CANON32(R)

TEXT ·f32Sum(SB), NOSPLIT, $0-24
	NAN32
	BRISK(F32_ADD, VCMPPS, CANON32)

TEXT ·f32Prod(SB), NOSPLIT, $0-24
	NAN32
	BRISK(F32_MUL, VCMPPS, CANON32)

TEXT ·f32Min(SB), NOSPLIT, $0-24
	NAN32
	FULL(F32_MIN)

TEXT ·f32Max(SB), NOSPLIT, $0-24
	NAN32
	FULL(F32_MAX)

TEXT ·f32Div(SB), NOSPLIT, $0-24
	NAN32
	MOVQ src+8(FP), SI
	VBROADCASTSS (SI), Y13
	KERNEL(F32_DIV, VMOVDQU, Y0, Y14, 32, 0, 1, 1, 32)

TEXT ·f32Scale(SB), NOSPLIT, $0-32
	NAN32
	MOVQ factor+24(FP), AX
	VBROADCASTSS (AX), Y13
	FULL(F32_SCALE)

// f64 is the same with doubles.

#define NAN64 SPLAT64(0x7ff8000000000000, X15, Y15)

#define FIX64(M, R) VBLENDVPD M, Y15, R, R

#define CANON64(R) \
	VCMPPD $3, R, R, Y7 \
	FIX64(Y7, R)

#define F64_ADD(D, S, R) \
	VMOVUPD D, R    \
	VADDPD S, R, R

#define F64_MUL(D, S, R) \
	VMOVUPD D, R    \
	VMULPD S, R, R

#define F64_MIN(D, S, R) \
	VMOVUPD D, Y1         \
	VMOVUPD S, Y2         \
	VCMPPD  $3, Y1, Y2, Y7 \
	VMINPD  Y1, Y2, Y6    \
	VMINPD  Y2, Y1, R     \
	VORPD   Y6, R, R      \
	FIX64(Y7, R)

#define F64_MAX(D, S, R) \
	VMOVUPD D, Y1         \
	VMOVUPD S, Y2         \
	VCMPPD  $3, Y1, Y2, Y7 \
	VMAXPD  Y1, Y2, Y6    \
	VMAXPD  Y2, Y1, R     \
	VANDPD  Y6, R, R      \
	FIX64(Y7, R)

#define F64_DIV(D, S, R) \
	VMOVUPD D, R     \
	VDIVPD Y13, R, R \
	CANON64(R)

#define F64_SCALE(D, S, R) \
	VMULPD S, Y13, R \
	CANON64(R)

TEXT ·f64Sum(SB), NOSPLIT, $0-24
	NAN64
	BRISK(F64_ADD, VCMPPD, CANON64)

TEXT ·f64Prod(SB), NOSPLIT, $0-24
	NAN64
	BRISK(F64_MUL, VCMPPD, CANON64)

TEXT ·f64Min(SB), NOSPLIT, $0-24
	NAN64
	FULL(F64_MIN)

TEXT ·f64Max(SB), NOSPLIT, $0-24
	NAN64
	FULL(F64_MAX)

TEXT ·f64Div(SB), NOSPLIT, $0-24
	NAN64
	MOVQ src+8(FP), SI
	VBROADCASTSD (SI), Y13
	KERNEL(F64_DIV, VMOVDQU, Y0, Y14, 32, 0, 1, 1, 32)

TEXT ·f64Scale(SB), NOSPLIT, $0-32
	NAN64
	MOVQ factor+24(FP), AX
	VBROADCASTSD (AX), Y13
	FULL(F64_SCALE)
