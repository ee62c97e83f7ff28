//go:build linux && cgo

package tests

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// BenchmarkC reports the time of calls of a C program in a job of one rank, where most of it is overhead, and of two
// ranks. BenchmarkGo makes the same calls through the Go package. Both report the fastest batch of 100 calls.
func BenchmarkC(b *testing.B) {
	for _, ranks := range []int{1, 2} {
		b.Run(fmt.Sprint("ranks=", ranks), func(b *testing.B) {
			out := job{ranks: ranks, args: []string{"20000"}, plain: true}.start(b, "cost")
			for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
				var name, unit string
				var value float64
				if n, _ := fmt.Sscanf(s.Text(), "[0] %s %f %s", &name, &value, &unit); n == 3 && unit != "passed" {
					b.ReportMetric(value, name+"-"+unit)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func BenchmarkGo(b *testing.B) {
	ctx := context.Background()
	c, err := allcast.Join(ctx, allcast.Options{Size: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	mine, all := make([]byte, 1), make([]byte, 1)
	for _, call := range []struct {
		name string
		run  func() error
	}{
		{"barrier", func() error { return c.Barrier(ctx) }},
		{"start-barrier", func() error { return wait(c.StartBarrier()) }},
		{"allgather", func() error { return c.Allgather(ctx, mine, all) }},
		{"start-allgather", func() error { return wait(c.StartAllgather(mine, all)) }},
	} {
		b.Run(call.name, func(b *testing.B) {
			const batch = 100
			best := time.Hour
			for b.Loop() {
				begin := time.Now()
				for range batch {
					if err := call.run(); err != nil {
						b.Fatal(err)
					}
				}
				best = min(best, time.Since(begin))
			}
			b.ReportMetric(float64(best)/batch, call.name+"-ns/op")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func wait(r *allcast.Request, err error) error {
	if err != nil {
		return err
	}
	return r.Wait(context.Background())
}
