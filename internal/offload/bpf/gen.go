package bpf

// Both objects come from place.c: place is for production, fault also injects faults. They need
// clang-14 and libbpf's headers; "make bpf" adds the other paths.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go@v0.22.0 -tags linux -cc clang-14 -strip llvm-strip-14 -target bpfel place place.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go@v0.22.0 -tags linux -cc clang-14 -strip llvm-strip-14 -target bpfel -no-global-types fault place.c -- -DFAULTS
