//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// measureAllcast runs "allcast perf" with one rank per host. Each algorithm has its own job:
// otherwise buffers of an earlier algorithm would count as memory.
func measureAllcast(ctx context.Context, bed *testbed, op, algo string, n int64) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return sample{}, err
	}
	iters, warmup := iterations(op, n, bed.ranks)
	perf := []string{
		bed.allcast, "perf", op, "--algo", algo, "-b", fmt.Sprint(n),
		"-n", fmt.Sprint(iters), "-w", fmt.Sprint(warmup), "--json",
	}
	cmds := make([]*exec.Cmd, bed.ranks)
	var stdout bytes.Buffer
	stderr := make([]bytes.Buffer, bed.ranks)
	for rank := range cmds {
		cmd := bed.exec(ctx, rank, perf...)
		cmd.Env = append(os.Environ(),
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", bed.ranks), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
			"MASTER_ADDR="+bed.lab.Plan.HostAddr(0).String(), "MASTER_PORT=29500", "ALLCAST_KEY="+hex.EncodeToString(key),
			// As "allcast run" and "allcast lab run" set it: the hosts share the processors.
			fmt.Sprintf("GOMAXPROCS=%d", max(1, runtime.NumCPU()/bed.ranks)))
		cmd.Stderr = &stderr[rank]
		if rank == 0 {
			cmd.Stdout = &stdout
		}
		cmds[rank] = cmd
	}
	peak, err := runRanks(cmds, cancel)
	if err != nil {
		for i := range stderr {
			if stderr[i].Len() > 0 {
				return sample{}, fmt.Errorf("allcast %s: %w: %s", op, err, lastLine(stderr[i].Bytes()))
			}
		}
		return sample{}, fmt.Errorf("allcast %s: %w", op, err)
	}
	return parsePerf(stdout.String(), op, peak)
}

// runRanks runs all ranks, and returns the peak memory of one of them.
func runRanks(cmds []*exec.Cmd, cancel func()) (peak int64, err error) {
	var wait sync.WaitGroup
	errs := make([]error, len(cmds))
	for i, cmd := range cmds {
		if errs[i] = cmd.Start(); errs[i] != nil {
			cancel()
			break
		}
		wait.Go(func() {
			if errs[i] = cmd.Wait(); errs[i] != nil {
				cancel() // the others would wait for this rank
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return peak, errors.Join(errs...)
		case <-time.After(20 * time.Millisecond):
			// One rank stands for all: sampling every rank would disturb the measurement.
			peak = max(peak, peakOf(cmds[len(cmds)-1]))
		}
	}
}

// peakOf reads the kernel's high-water mark. It misses growth after the last sample.
func peakOf(cmd *exec.Cmd) int64 {
	if cmd.Process == nil {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0 // the process has just ended
	}
	return kib << 10
}

func parsePerf(text, op string, peak int64) (sample, error) {
	var r struct {
		Algo     string  `json:"algo"`
		Wrong    int64   `json:"wrong"`
		User     float64 `json:"user_cpu_us"`
		Sys      float64 `json:"sys_cpu_us"`
		Repaired int64   `json:"repaired_bytes"`
		Bytes    int64   `json:"bytes"`
		Chunks   int64   `json:"chunks_total"`
		Chunk    int64   `json:"chunk"`
		Time     struct {
			P50 float64 `json:"p50"`
		} `json:"time_us"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return sample{}, fmt.Errorf("allcast %s: %w: %s", op, err, text)
	}
	if r.Wrong != 0 {
		return sample{}, fmt.Errorf("allcast %s: verification found %d wrong bytes", op, r.Wrong)
	}
	s := sample{time: r.Time.P50, cpu: r.User + r.Sys, peak: peak, algorithm: r.Algo}
	if total := r.Chunks * min(r.Chunk, r.Bytes); total > 0 {
		s.repaired = float64(r.Repaired) / float64(total)
	}
	return s, nil
}
