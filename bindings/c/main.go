//go:build linux && cgo

// Command c is the C library of Allcast: "make lib" builds it with -buildmode=c-shared. include/allcast.h is its
// interface, and docs/c.md describes its use.
//
// A public function is written in C (allcast.c). It refuses to work in a forked child, and otherwise calls the Go
// function of the same name. Operations share one path: struct operation of internal.h holds their arguments.
// Programs hold numbers instead of pointers to Go memory (handles.go).
package main

func main() {}
