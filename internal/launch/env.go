//go:build unix

package launch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const host = "127.0.0.1"

// replaced are the variables that a rank gets from us. A key file of the
// surrounding job would contradict the fresh key, and torchrun's variables would
// say that somebody listens on MASTER_PORT.
var replaced = []string{
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
	"GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
	"ALLCAST_KEY", "ALLCAST_KEY_FILE",
}

// environment returns what all ranks get.
func environment(base []string, ranks, procs int) ([]string, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails
	env := make([]string, 0, len(base)+8)
	for _, v := range base {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(replaced, name) {
			env = append(env, v)
		}
	}
	size := strconv.Itoa(ranks)
	if !slices.ContainsFunc(base, func(v string) bool { return strings.HasPrefix(v, "GOMAXPROCS=") }) {
		// A Go program that thinks all processors are its own wakes threads on all of them,
		// only for other ranks to wait.
		env = append(env, "GOMAXPROCS="+strconv.Itoa(max(1, procs, runtime.NumCPU()/ranks)))
	}
	return append(env, "WORLD_SIZE="+size, "LOCAL_WORLD_SIZE="+size, "MASTER_ADDR="+host,
		"MASTER_PORT="+strconv.Itoa(port), "ALLCAST_KEY="+hex.EncodeToString(key[:])), nil
}

// rankEnv completes the environment of one rank.
func rankEnv(common []string, rank int) []string {
	r := strconv.Itoa(rank)
	return append(common[:len(common):len(common)], "RANK="+r, "LOCAL_RANK="+r)
}

// Ports below those that the kernel hands out by itself (32768 and up on Linux, 49152
// and up elsewhere): no connection takes one of them by chance between our look and
// rank 0's Listen, and a rank that dials too early cannot connect to itself.
const (
	firstPort = 10000
	lastPort  = 32000
)

// freePort finds a port that nobody listens on.
func freePort() (int, error) {
	var last error
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(lastPort-firstPort))
		if err != nil {
			return 0, err
		}
		port := firstPort + int(n.Int64())
		if last = free(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s: %w", host, last)
}

func free(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
