//go:build unix && !linux

package launch

// Adopt does nothing where a process cannot become the parent of its
// grandchildren.
func Adopt() (end func()) { return func() {} }
