//go:build !linux

package inherit

// Enable does nothing: only Linux has the C library.
func Enable([]Entry) {}

// Conn does nothing.
func Conn(any) {}

// FD does nothing.
func FD(int) {}
