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

// environment returns a function that makes the environment of a rank of this machine. All ranks of a job share a port
// and a fresh key.
func (c *Config) environment() (of func(local int) []string, err error) {
	part := c.Part
	if part == nil {
		port, err := freePort(host)
		if err != nil {
			return nil, err
		}
		part = &Part{Size: c.Ranks, Addr: net.JoinHostPort(host, strconv.Itoa(port)), Key: newKey()}
	}
	env := slices.Clone(c.Env)
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GOMAXPROCS=") }) {
		// A Go program that assumes it has all processors wakes threads on all of them, which only delays
		// the other ranks.
		env = append(env, "GOMAXPROCS="+strconv.Itoa(max(1, c.Procs, runtime.NumCPU()/c.Ranks)))
	}
	return func(local int) []string {
		j := settings.Job{
			Rank: part.First + local, Size: part.Size, LocalRank: local, LocalSize: c.Ranks, Addr: part.Addr,
		}
		return j.Environ(env, part.Key)
	}, nil
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = crand.Read(key) // never fails
	return key
}

// The range of ports lies below the kernel's ephemeral ports (32768 and up on Linux, 49152 and up
// elsewhere). Therefore no connection takes the port by chance before rank 0 listens, and a rank that
// dials too early cannot connect to itself.
const (
	firstPort = 10000
	lastPort  = 32000
)

// freePort finds a port of an address on which no process listens; "" stands for all addresses.
func freePort(host string) (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("no free port: %w", last)
}
