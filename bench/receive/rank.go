//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/offload/napi"
)

const (
	specVariable  = "RECEIVE_SPEC"
	boundVariable = "RECEIVE_BOUND"
)

// spec describes one run. The environment carries it to the ranks.
type spec struct {
	ID       string // on the command line
	Name     string // in the table
	TCP      bool   // a stream without Allcast
	Plain    bool
	Datapath string
	Hook     string
	Chunk    int
	Bytes    int
	Iters    int
}

// result holds the receiver's measurements by their number.
type result [measurements]int64

const (
	wall    = iota // times, in ns
	user           // of the process
	system         // of the process
	thread         // of the kernel threads of its interface
	softirq        // of all softirqs outside these threads, on all processors
	chunks
	repaired
	measurements
)

// allChunks returns the number of chunks that arrived or were repaired.
func (r *result) allChunks() int64 { return max(1, r[chunks]+r[repaired]) }

// cores are the processors of the sender and the receiver.
var cores = [2]int{0, 1}

func rank(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	me, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil || me > 1 {
		return fmt.Errorf("RANK=%q: want 0 or 1", os.Getenv("RANK"))
	}
	if os.Getenv(boundVariable) == "" {
		return bind(cores[me])
	}
	if s.TCP {
		return stream(&s, me)
	}
	o := allcast.Options{PlainSockets: s.Plain, Datapath: s.Datapath, Hook: s.Hook, Chunk: s.Chunk, NoCalibration: true}
	if me == 1 {
		o.ReceiveCores = cores[1:]
	}
	ctx := context.Background()
	c, err := allcast.Join(ctx, o)
	if err != nil {
		return err
	}
	r, err := measure(ctx, c, &s)
	if err != nil {
		return errors.Join(err, c.Abort(), c.Close())
	}
	if me == 0 {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return c.Close()
}

// bind executes this program again with all of its threads on one processor.
func bind(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), boundVariable+"=1"))
}

// measure broadcasts, verifies the last Broadcast, and returns the receiver's measurements on both ranks.
func measure(ctx context.Context, c *allcast.Comm, s *spec) (*result, error) {
	buf, err := c.Alloc(s.Bytes)
	if err != nil {
		return nil, err
	}
	for i := range buf {
		buf[i] = byte(c.Rank())
	}
	broadcast := func(n int) error {
		for i := range n {
			if c.Rank() == 0 {
				buf[0] = byte(i)
			}
			if err := c.Broadcast(ctx, buf, 0, allcast.WithAlgorithm("mcast")); err != nil {
				return err
			}
		}
		return nil
	}
	if err := broadcast(2); err != nil {
		return nil, err
	}
	if err := c.Barrier(ctx); err != nil {
		return nil, err
	}
	before := usage(c)
	if err := broadcast(s.Iters); err != nil {
		return nil, err
	}
	r := usage(c)
	for i := range r {
		r[i] -= before[i]
	}
	if buf[0] != byte(s.Iters-1) || bytes.Count(buf[1:], []byte{0}) != len(buf)-1 {
		return nil, errors.New("the last Broadcast delivered wrong bytes")
	}
	return &r, allcast.BroadcastSlice(ctx, c, r[:], 1)
}

// usage returns the measurements so far.
func usage(c *allcast.Comm) result {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	s := c.Stats()
	return result{
		wall: time.Now().UnixNano(), user: u.Utime.Nano(), system: u.Stime.Nano(), thread: threadTime(),
		softirq: softirqTime(), chunks: int64(s.ReceivedChunks), repaired: int64(s.RepairedChunks),
	}
}

func threadTime() (ns int64) {
	ifis, err := net.Interfaces()
	if err != nil {
		return 0
	}
	for i := range ifis {
		if ifis[i].Flags&(net.FlagLoopback|net.FlagUp) != net.FlagUp {
			continue
		}
		pids, err := napi.Threads(&ifis[i])
		if err != nil {
			continue
		}
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
			if err != nil {
				continue
			}
			n, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			ns += n
		}
	}
	return ns
}

func softirqTime() int64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 8 {
		return 0
	}
	ticks, _ := strconv.ParseInt(f[7], 10, 64)
	return ticks * int64(time.Second) / 100
}
