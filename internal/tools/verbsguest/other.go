//go:build !linux

// Command verbsguest runs the tests of the verbs fabric under QEMU, on Linux only.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("verbsguest: only on Linux\n")
	os.Exit(1)
}
