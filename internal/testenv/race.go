//go:build race

package testenv

// Race says whether the race detector is on: what is too long with it is cut short,
// and pools lose things on purpose.
const Race = true
