//go:build !linux

package lab

// Usable returns an error if this process cannot build labs.
func Usable() error { return errOther }
