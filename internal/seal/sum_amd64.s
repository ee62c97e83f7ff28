//go:build !purego

#include "textflag.h"

// foldKeys moves a vector by 2048, 1536, 1024 and 512 bits. For a distance of n bits, the keys are the
// remainders of x^(n+32) and x^(n-32), bit-reversed and shifted by one, for its lower and upper half.
DATA foldKeys<>+0(SB)/8, $0xdcb17aa4
DATA foldKeys<>+8(SB)/8, $0xb9e02b86
DATA foldKeys<>+16(SB)/8, $0xa87ab8a8
DATA foldKeys<>+24(SB)/8, $0xab7aff2a
DATA foldKeys<>+32(SB)/8, $0x6992cea2
DATA foldKeys<>+40(SB)/8, $0x0d3b6092
DATA foldKeys<>+48(SB)/8, $0x740eef02
DATA foldKeys<>+56(SB)/8, $0x9e4addf8
GLOBL foldKeys<>(SB), RODATA|NOPTR, $64

// FOLD moves a vector forward by the distance of the constants in k, and adds what is there.
#define FOLD(acc, k, t, there) \
	VPCLMULQDQ $0x00, k, acc, t \
	VPCLMULQDQ $0x11, k, acc, acc \
	VPTERNLOGQ $0x96, there, t, acc

// func foldSum(register uint32, p *byte, vectors int) uint32
TEXT ·foldSum(SB), NOSPLIT, $64-28
	MOVL  register+0(FP), AX
	MOVQ  p+8(FP), SI
	MOVQ  vectors+16(FP), CX
	VMOVD AX, X8
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VPXORQ Z8, Z0, Z0
	VBROADCASTI32X4 foldKeys<>+0(SB), Z9
	ADDQ $256, SI
	SUBQ $8, CX
	JLT  join

four:
	FOLD(Z0, Z9, Z4, (SI))
	FOLD(Z1, Z9, Z5, 64(SI))
	FOLD(Z2, Z9, Z6, 128(SI))
	FOLD(Z3, Z9, Z7, 192(SI))
	ADDQ $256, SI
	SUBQ $4, CX
	JGE  four

join:
	VBROADCASTI32X4 foldKeys<>+16(SB), Z9
	FOLD(Z0, Z9, Z4, Z3)
	VBROADCASTI32X4 foldKeys<>+32(SB), Z9
	FOLD(Z1, Z9, Z5, Z0)
	VBROADCASTI32X4 foldKeys<>+48(SB), Z9
	FOLD(Z2, Z9, Z6, Z1)
	ADDQ $4, CX
	JZ   last

one:
	FOLD(Z2, Z9, Z6, (SI))
	ADDQ $64, SI
	DECQ CX
	JNZ  one

last:
	VMOVDQU64 Z2, 0(SP)
	VZEROUPPER
	XORL   AX, AX
	CRC32Q 0(SP), AX
	CRC32Q 8(SP), AX
	CRC32Q 16(SP), AX
	CRC32Q 24(SP), AX
	CRC32Q 32(SP), AX
	CRC32Q 40(SP), AX
	CRC32Q 48(SP), AX
	CRC32Q 56(SP), AX
	MOVL   AX, ret+24(FP)
	RET

// func wordsSum(register uint32, a, b uint64) uint32
TEXT ·wordsSum(SB), NOSPLIT, $0-28
	MOVL   register+0(FP), AX
	CRC32Q a+8(FP), AX
	CRC32Q b+16(FP), AX
	MOVL   AX, ret+24(FP)
	RET
