//go:build !race

package testenv

// Race reports whether the race detector is on. Long tests shorten their work then, and tests that
// count allocations skip, because pools drop entries at random.
const Race = false
