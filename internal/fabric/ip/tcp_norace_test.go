//go:build !race

package ip

const tcpRace = false
