//go:build unix && !linux

package launch

// Adopt does nothing, because a process cannot become the parent of its grandchildren here.
func Adopt() (end func()) { return func() {} }
