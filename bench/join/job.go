//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"
)

// result describes how one job joined.
type result struct {
	wall, cpu      float64 // seconds; cpu is that of all ranks
	cpu0           float64 // seconds of rank 0
	sent, received float64 // bytes of rank 0
	memory         float64 // bytes per rank, on average
	files          float64 // of the rank with the most
}

// job starts a job, waits until all ranks have joined, and ends it.
func job(ctx context.Context, size int) (r result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	env, err := environment(size)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ranks []*exec.Cmd
	var inputs []io.Closer
	reports := make(chan error, size)
	all := make([]joined, size)
	start := time.Now()
	for i := range size {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(slices.Clone(env), "RANK="+strconv.Itoa(i))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err = errors.Join(inErr, outErr); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			break
		}
		ranks, inputs = append(ranks, cmd), append(inputs, in)
		go func() { reports <- json.NewDecoder(out).Decode(&all[i]) }()
	}
	for range ranks {
		if e := <-reports; e != nil && err == nil {
			err = fmt.Errorf("a rank ended before it had joined: %w", e)
			cancel()
		}
	}
	for _, in := range inputs {
		_ = in.Close()
	}
	for i, cmd := range ranks {
		if e := cmd.Wait(); e != nil && err == nil {
			err = fmt.Errorf("rank %d: %w", i, e)
		}
	}
	return summary(start, all), err
}

// environment returns what all ranks of a job have in common. Each rank has one thread at a time, as ranks that share
// few processors should.
func environment(size int) ([]string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // a failure would end the process
	return append(os.Environ(), rankVariable+"=1", "GOMAXPROCS=1", "MASTER_ADDR=127.0.0.1",
		"MASTER_PORT="+strconv.Itoa(port), "WORLD_SIZE="+strconv.Itoa(size), "ALLCAST_KEY="+hex.EncodeToString(key[:])), nil
}

func summary(start time.Time, all []joined) (r result) {
	for _, j := range all {
		r.wall = max(r.wall, time.Unix(0, j.At).Sub(start).Seconds())
		r.cpu += j.CPU.Seconds()
		r.memory += float64(j.Memory) / float64(len(all))
		r.files = max(r.files, float64(j.Files))
	}
	r.cpu0 = all[0].CPU.Seconds()
	r.sent, r.received = float64(all[0].Sent), float64(all[0].Received)
	return r
}

// printTable prints medians, with the smallest and the largest time.
func printTable(w io.Writer, sizes []int, results map[int][]result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t,
		"ranks\ttime_s\tmin_s\tmax_s\tcpu_ms/rank\tcpu_ms_0\tsent_0\treceived_0\tbytes_0/rank\tMB/rank\tfiles\t")
	for _, n := range sizes {
		column := func(f func(result) float64) []float64 {
			var v []float64
			for _, r := range results[n] {
				v = append(v, f(r))
			}
			slices.Sort(v)
			return v
		}
		median := func(f func(result) float64) float64 { v := column(f); return v[len(v)/2] }
		wall := column(func(r result) float64 { return r.wall })
		sent := median(func(r result) float64 { return r.sent })
		received := median(func(r result) float64 { return r.received })
		_, _ = fmt.Fprintf(t, "%d\t%.2f\t%.2f\t%.2f\t", n, wall[len(wall)/2], wall[0], wall[len(wall)-1])
		_, _ = fmt.Fprintf(t, "%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t\n",
			1e3*median(func(r result) float64 { return r.cpu })/float64(n), 1e3*median(func(r result) float64 { return r.cpu0 }),
			sent, received, (sent+received)/float64(n), median(func(r result) float64 { return r.memory })/1e6,
			median(func(r result) float64 { return r.files }))
	}
	return t.Flush()
}
