package dpa

import (
	"math"
	"slices"
	"testing"
	"time"
)

// With one connection, the link idles while the sender posts a window and waits for its acknowledgement.
func TestWindowLeavesPauses(t *testing.T) {
	cfg := experiment(UC).with(1, BenchmarkSender)
	s := cfg.Sender
	windows := float64(cfg.Buffer / cfg.Chunk / int64(s.Window))
	wire := float64(cfg.Buffer/cfg.Chunk) * float64(wireBytes(UC, cfg.Chunk)) * 8 / cfg.Link
	pauses := windows*(float64(s.Window)*s.Post.Seconds()) + (windows-1)*s.Ack.Seconds()
	want := float64(cfg.Buffer) / (wire + pauses) / (1 << 30)
	if got := cfg.offered(); math.Abs(got/want-1) > 1e-3 {
		t.Errorf("the sender offers %.3f GiB/s, want %.3f", got, want)
	}
}

// Each connection gets an equal contiguous block, each chunk once, and the link carries one chunk at a time.
func TestScheduleUsesTheLinkOnce(t *testing.T) {
	for _, burst := range []int{0, 3, 1000} {
		cfg := Config{Transport: UD, Threads: 5, Chunk: 1000, Buffer: 1_000_001, Link: 200e9, Queue: QueueDepth}
		cfg.Sender = Sender{Window: 7, Post: 10 * time.Nanosecond, Ack: time.Microsecond, Burst: burst}
		m := newMachine(cfg)
		var all []int64
		for w, arrivals := range m.sent {
			from, to := m.block(w)
			if int64(len(arrivals)) != to-from || !slices.IsSorted(arrivals) {
				t.Errorf("worker %d gets %d chunks, want %d in order", w, len(arrivals), to-from)
			}
			all = append(all, arrivals...)
		}
		slices.Sort(all)
		for i := 1; i < len(all)-1; i++ { // the last chunk is short
			if float64(all[i]-all[i-1]) < m.wire-1 {
				t.Fatalf("bursts of %d: chunks %d and %d overlap on the link", burst, i-1, i)
			}
		}
		run(t, cfg)
	}
}

// A sender with a window that never ends and no costs is an ideal one.
func TestIdealSenderIsALimit(t *testing.T) {
	cfg := experiment(UD).with(8, Sender{})
	ideal := cfg.run()
	windowed := cfg.with(8, Sender{Window: MaxChunks}).run()
	if math.Abs(windowed.Throughput/ideal.Throughput-1) > 1e-3 {
		t.Errorf("%.2f GiB/s, the ideal sender %.2f", windowed.Throughput, ideal.Throughput)
	}
}
