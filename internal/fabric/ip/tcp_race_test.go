//go:build race

package ip

// tcpRace says that the race detector runs; pools then forget at random.
const tcpRace = true
