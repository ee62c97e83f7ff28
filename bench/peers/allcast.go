//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/launch"
)

// measureAllcast runs "allcast perf" with one rank per host. Each algorithm has its own job:
// otherwise buffers of an earlier algorithm would count as memory.
func measureAllcast(ctx context.Context, bed *testbed, op, algo string, n int64, often schedule) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ranks := bed.ranksOf(op)
	var stdout, stderr bytes.Buffer
	ended, peak := make(chan struct{}), make(chan int64, 1)
	err := launch.Run(ctx, launch.Config{
		Ranks: ranks,
		Command: []string{
			bed.allcast, "lab", "enter", bed.lab.Plan.Config.Name, "--", bed.allcast, "perf", op, "--algo", algo,
			"-b", fmt.Sprint(n), "-n", fmt.Sprint(often.iters), "-w", fmt.Sprint(often.warmup), "--json",
		},
		Stdout: &stdout, Stderr: &stderr,
		Prefix: func(int, bool) string { return "" },
		Started: func(rank, pid int) {
			// One rank stands for all: sampling every rank would disturb the measurement.
			if rank == ranks-1 {
				go func() { peak <- peakMemory(pid, ended) }()
			}
		},
	})
	close(ended)
	if err != nil {
		return sample{}, fmt.Errorf("allcast %s: %w: %s", op, err, lastLine(stderr.Bytes()))
	}
	return parsePerf(stdout.String(), op, <-peak)
}

// peakMemory samples the kernel's high-water mark of a process. It misses growth after the last sample.
func peakMemory(pid int, ended <-chan struct{}) (peak int64) {
	for {
		select {
		case <-ended:
			return peak
		case <-time.After(20 * time.Millisecond):
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // fails if the process has just ended
		_, rest, _ := strings.Cut(string(text), "VmHWM:")
		var kib int64
		if _, err := fmt.Sscan(rest, &kib); err == nil {
			peak = max(peak, kib<<10)
		}
	}
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
		Fallback string  `json:"fallback_reason"`
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
	s := sample{time: r.Time.P50, cpu: r.User + r.Sys, peak: peak, algorithm: r.Algo, fallback: r.Fallback}
	if total := r.Chunks * min(r.Chunk, r.Bytes); total > 0 {
		s.repaired = float64(r.Repaired) / float64(total)
	}
	return s, nil
}
