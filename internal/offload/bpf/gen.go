package bpf

// Needs clang-14 and libbpf's headers; "make bpf" says where the others are.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go@v0.22.0 -tags linux -cc clang-14 -strip llvm-strip-14 -target bpfel place place.c
