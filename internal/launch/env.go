//go:build unix

package launch

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/settings"
)

const host = "127.0.0.1"

// environment returns a function that makes the environment of a rank. All ranks share a port and a
// fresh key.
func (c *Config) environment() (of func(rank int) []string, err error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	_, _ = crand.Read(key) // never fails
	env := slices.Clone(c.Env)
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GOMAXPROCS=") }) {
		// A Go program that assumes it has all processors wakes threads on all of them, which only delays
		// the other ranks.
		env = append(env, "GOMAXPROCS="+strconv.Itoa(max(1, c.Procs, runtime.NumCPU()/c.Ranks)))
	}
	return func(rank int) []string {
		j := settings.Job{Rank: rank, Size: c.Ranks, LocalRank: rank, LocalSize: c.Ranks, Addr: addr}
		return j.Environ(env, key)
	}, nil
}

// The range of ports lies below the kernel's ephemeral ports (32768 and up on Linux, 49152 and up
// elsewhere). Therefore no connection takes the port by chance before rank 0 listens, and a rank that
// dials too early cannot connect to itself.
const (
	firstPort = 10000
	lastPort  = 32000
)

// freeAddr finds an address on which no process listens.
func freeAddr() (string, error) {
	var last error
	for range 100 {
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
		last = err
	}
	return "", fmt.Errorf("no free port on %s: %w", host, last)
}
