// The loop that all kernels share. A kernel is
//
//	func(dst *D, src *S, n int)
//
// where n counts the bytes of the narrower of both, at least UNIT.
//
// CALC(D, S, R) computes one vector from the memory operands D and S into the
// register R; it may use Y1 to Y7. MOVE stores R. A vector takes DSTEP bytes of
// dst and SSTEP of src, and UNIT of n. Y8 to Y13 and Y15 hold the kernel's
// constants, which it sets up itself.
//
// The last vector may overlap the one before it. So it is computed first, from
// values that nobody has written yet, and stored at the end, where it writes
// what is there already and the rest that filled no vector. That is right for
// dst == src as well.
#define KERNEL(CALC, MOVE, R, LAST, DSTEP, SSTEP, DSCALE, SSCALE, UNIT) \
	MOVQ dst+0(FP), DI                  \
	MOVQ src+8(FP), SI                  \
	MOVQ n+16(FP), CX                   \
	LEAQ (-DSTEP)(DI)(CX*DSCALE), R8    \
	LEAQ (-SSTEP)(SI)(CX*SSCALE), R9    \
	CALC((R8), (R9), LAST)              \
	SUBQ $(4*UNIT), CX                  \
	JB   few                            \
	PCALIGN $32                         \
four:                                       \
	CALC((0*DSTEP)(DI), (0*SSTEP)(SI), R) \
	MOVE R, (0*DSTEP)(DI)               \
	CALC((1*DSTEP)(DI), (1*SSTEP)(SI), R) \
	MOVE R, (1*DSTEP)(DI)               \
	CALC((2*DSTEP)(DI), (2*SSTEP)(SI), R) \
	MOVE R, (2*DSTEP)(DI)               \
	CALC((3*DSTEP)(DI), (3*SSTEP)(SI), R) \
	MOVE R, (3*DSTEP)(DI)               \
	ADDQ $(4*DSTEP), DI                 \
	ADDQ $(4*SSTEP), SI                 \
	SUBQ $(4*UNIT), CX                  \
	JAE  four                           \
few:                                        \
	ADDQ $(3*UNIT), CX                  \
	JNC  last                           \
one:                                        \
	CALC((DI), (SI), R)                 \
	MOVE R, (DI)                        \
	ADDQ $DSTEP, DI                     \
	ADDQ $SSTEP, SI                     \
	SUBQ $UNIT, CX                      \
	JAE  one                            \
last:                                       \
	MOVE LAST, (R8)                     \
	VZEROUPPER                          \
	RET

// BRISK is FULL for a CALC whose NaNs are rare: it looks at four results at
// once, and fixes them only if one is NaN. The comparisons and blends that it
// saves are a quarter of all micro-operations. CALC leaves NaNs as they are, COMPARE
// is VCMPPS or VCMPPD, CANON fixes a register.
#define BRISK(CALC, COMPARE, CANON) \
	MOVQ dst+0(FP), DI             \
	MOVQ src+8(FP), SI             \
	MOVQ n+16(FP), CX              \
	LEAQ (-32)(DI)(CX*1), R8       \
	LEAQ (-32)(SI)(CX*1), R9       \
	CALC((R8), (R9), Y14)          \
	CANON(Y14)                     \
	SUBQ $128, CX                  \
	JB   few                       \
	PCALIGN $32                    \
four:                                  \
	CALC(0(DI), 0(SI), Y0)         \
	CALC(32(DI), 32(SI), Y1)       \
	CALC(64(DI), 64(SI), Y2)       \
	CALC(96(DI), 96(SI), Y3)       \
	COMPARE $3, Y0, Y1, Y4         \
	COMPARE $3, Y2, Y3, Y5         \
	VORPS Y4, Y5, Y4               \
	VMOVMSKPS Y4, AX               \
	TESTL AX, AX                   \
	JNZ  nan                       \
put:                                   \
	VMOVUPS Y0, 0(DI)              \
	VMOVUPS Y1, 32(DI)             \
	VMOVUPS Y2, 64(DI)             \
	VMOVUPS Y3, 96(DI)             \
	ADDQ $128, DI                  \
	ADDQ $128, SI                  \
	SUBQ $128, CX                  \
	JAE  four                      \
few:                                   \
	ADDQ $96, CX                   \
	JNC  last                      \
one:                                   \
	CALC((DI), (SI), Y0)           \
	CANON(Y0)                      \
	VMOVUPS Y0, (DI)               \
	ADDQ $32, DI                   \
	ADDQ $32, SI                   \
	SUBQ $32, CX                   \
	JAE  one                       \
last:                                  \
	VMOVUPS Y14, (R8)              \
	VZEROUPPER                     \
	RET                            \
nan:                                   \
	CANON(Y0)                      \
	CANON(Y1)                      \
	CANON(Y2)                      \
	CANON(Y3)                      \
	JMP  put

// As wide as a vector on both sides.
#define FULL(CALC) KERNEL(CALC, VMOVDQU, Y0, Y14, 32, 32, 1, 1, 32)

// Every 32 bits of Y become the constant.
#define SPLAT32(c, X, Y) \
	MOVL $c, AX       \
	VMOVD AX, X       \
	VPBROADCASTD X, Y

// The same with 64 bits.
#define SPLAT64(c, X, Y) \
	MOVQ $c, AX       \
	VMOVQ AX, X       \
	VPBROADCASTQ X, Y

// The one NaN of f32, in Y15.
#define NAN32 SPLAT32(0x7fc00000, X15, Y15)

// Where the mask M has its sign bits set, R becomes NaN.
#define FIX32(M, R) VBLENDVPS M, Y15, R, R

// Where R is not equal to itself it is NaN, and becomes our NaN. Uses Y7.
#define CANON32(R) \
	VCMPPS $3, R, R, Y7 \
	FIX32(Y7, R)

// R = min(A, B). VMINPS returns its second operand for two zeros and for NaN:
// both orders, or-ed, give -0 if either is. NaN is fixed afterwards. Uses Y6, Y7.
#define MIN32(A, B, R) \
	VCMPPS $3, A, B, Y7 \
	VMINPS A, B, Y6     \
	VMINPS B, A, R      \
	VORPS  Y6, R, R     \
	FIX32(Y7, R)

// R = max(A, B), where and gives +0 if either is. Uses Y6, Y7.
#define MAX32(A, B, R) \
	VCMPPS $3, A, B, Y7 \
	VMAXPS A, B, Y6     \
	VMAXPS B, A, R      \
	VANDPS Y6, R, R     \
	FIX32(Y7, R)

#define ADD32(A, B, R) \
	VADDPS B, A, R \
	CANON32(R)

#define MUL32(A, B, R) \
	VMULPS B, A, R \
	CANON32(R)
