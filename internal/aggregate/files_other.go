//go:build !linux && !darwin

package aggregate

// openFiles is the limit of this process's open files. It is not known on other systems.
func openFiles() int { return 1 << 30 }
