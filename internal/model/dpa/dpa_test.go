package dpa

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

func run(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Arrived != (cfg.Buffer+cfg.Chunk-1)/cfg.Chunk || r.Arrived != r.Processed+r.Dropped {
		t.Errorf("%+v: %d arrived, %d processed, %d dropped", cfg, r.Arrived, r.Processed, r.Dropped)
	}
	if r.Issue < 0 || r.Issue > 1 || r.Idle > r.Issue || r.LinkShare > 1 {
		t.Errorf("%+v: shares out of range: %+v", cfg, r)
	}
	return r
}

// The model is calibrated on Table I. It reproduces the cycles exactly, and the throughput where the
// columns of the table are consistent.
func TestTableI(t *testing.T) {
	uc := run(t, experiment(UC))
	if uc.Cycles != 598 || uc.Wait != 0 || math.Abs(uc.Throughput-11.9) > 0.05*11.9 {
		t.Errorf("UC: %.1f cycles, %.1f GiB/s", uc.Cycles, uc.Throughput)
	}
	ud := run(t, experiment(UD))
	if ud.Cycles != 1084 || ud.Wait != 234 || math.Abs(ud.Throughput-5.2) > 0.01*5.2 {
		t.Errorf("UD: %.1f cycles and %.1f of waiting, %.2f GiB/s", ud.Cycles, ud.Wait, ud.Throughput)
	}
	// A single thread has a core to itself, so its IPC is that of Table I.
	if ipc := ud.Issue * (ud.Cycles + ud.Wait) / ud.Cycles; math.Abs(ipc-0.1) > 0.01 {
		t.Errorf("UD: IPC %.3f, want about 0.1", ipc)
	}
}

func TestTracesHaveTheTablesCosts(t *testing.T) {
	for _, m := range TableI {
		var instr, cycles int64
		for _, s := range kernel(m.Transport) {
			instr += s.instr
			cycles += s.instr + s.latency
		}
		if instr != m.Instructions || cycles != m.Cycles {
			t.Errorf("%s: %d instructions and %d cycles, want %d and %d", m.Transport, instr, cycles, m.Instructions, m.Cycles)
		}
	}
}

func TestSameConfigSameResult(t *testing.T) {
	for _, cfg := range []Config{
		{Transport: UD, Threads: 37, Chunk: 1000, Buffer: 1<<20 + 1, Link: 400e9, Queue: 8, Port: 7},
		{Transport: UC, Threads: 16, Chunk: 64, Buffer: 1 << 19, Link: 200e9},
		{Transport: UD, Threads: 3, Chunk: 4096, Buffer: 1<<20 + 1, Link: 200e9, Sender: BenchmarkSender},
	} {
		a, b := run(t, cfg), run(t, cfg)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%+v:\n%+v\n%+v", cfg, a, b)
		}
	}
}

// Throughput grows with the number of threads until the link or the accelerator is saturated. Beyond
// that, polling costs less than one percent.
func TestMoreThreadsDoMore(t *testing.T) {
	for _, tr := range []Transport{UD, UC} {
		for _, port := range []int64{0, FittedPort} {
			for _, cfg := range []Config{experiment(tr), small(tr)} {
				cfg.Port = port
				best := 0.0
				for n := 1; n <= MaxThreads; n *= 2 {
					if testenv.Race && n > ThreadsPerCore {
						break // the run without the race detector covers the rest
					}
					cfg.Threads = n
					r := run(t, cfg)
					if r.ChunkRate < 0.99*best {
						t.Errorf("%+v: %.0f chunks/s, with fewer threads %.0f", cfg, r.ChunkRate, best)
					}
					best = max(best, r.ChunkRate)
				}
			}
		}
	}
}

func TestNoMoreThanTheMachineCan(t *testing.T) {
	for _, tr := range []Transport{UD, UC} {
		cfg := small(tr)
		cfg.Threads, cfg.Link = ThreadsPerCore, 1e12
		r := run(t, cfg)
		if bound := ClockHz / float64(measured(tr).Instructions); r.ChunkRate > bound || r.ChunkRate < 0.97*bound {
			t.Errorf("%s: one full core handles %.2f M chunks/s, its issue slots allow %.2f", tr, r.ChunkRate/1e6, bound/1e6)
		}
	}
}

func TestSlowReceiverDrops(t *testing.T) {
	cfg := Config{Transport: UD, Threads: 1, Chunk: 4096, Buffer: 32 << 20, Link: 200e9, Queue: 16}
	r := run(t, cfg)
	// The receiver handles 5.2 of the 22.8 GiB/s that arrive.
	if math.Abs(r.DropShare-(1-5.2/22.8)) > 0.02 {
		t.Errorf("share of dropped chunks is %.3f", r.DropShare)
	}
	cfg.Threads = 16
	if r := run(t, cfg); r.Dropped != 0 {
		t.Errorf("16 threads dropped %d chunks, want 0", r.Dropped)
	}
}

func TestOddSizes(t *testing.T) {
	for _, cfg := range []Config{
		{Transport: UD, Threads: 1, Chunk: 4096, Buffer: 1, Link: 200e9},
		{Transport: UD, Threads: 256, Chunk: 4096, Buffer: 4097, Link: 1e6},
		{Transport: UC, Threads: 3, Chunk: MaxChunk, Buffer: MaxChunk*2 + 5, Link: 200e9},
		{Transport: UC, Threads: 5, Chunk: 1, Buffer: 99, Link: MaxLink, Queue: 1},
		{Transport: UD, Threads: 2, Chunk: 7, Buffer: 1000, Link: MaxLink, Queue: 1, Port: MaxPort},
	} {
		run(t, cfg)
	}
}

func TestBadConfigs(t *testing.T) {
	good := experiment(UD)
	for name, change := range map[string]func(*Config){
		"valid: ud, uc":    func(c *Config) { c.Transport = "rc" },
		"want 1 to 256":    func(c *Config) { c.Threads = 257 },
		"with ud, want 1":  func(c *Config) { c.Chunk = 4097 },
		"a chunk of 0":     func(c *Config) { c.Chunk = 0 },
		"a buffer of 0":    func(c *Config) { c.Buffer = 0 },
		"chunks at most":   func(c *Config) { c.Chunk, c.Buffer = 1, MaxChunks+1 },
		"a link of NaN":    func(c *Config) { c.Link = math.NaN() },
		"a receive queue":  func(c *Config) { c.Queue = -1 },
		"busy for -1":      func(c *Config) { c.Port = -1 },
		"a window of -1":   func(c *Config) { c.Sender.Window = -1 },
		"posted chunk":     func(c *Config) { c.Sender = Sender{Window: 1, Post: -1} },
		"to acknowledge":   func(c *Config) { c.Sender = Sender{Window: 1, Ack: time.Hour} },
		"bursts of -1":     func(c *Config) { c.Sender = Sender{Window: 1, Burst: -1} },
		"need a window":    func(c *Config) { c.Sender.Post = 1 },
		"0 threads: want ": func(c *Config) { c.Threads = 0 },
	} {
		cfg := good
		change(&cfg)
		if _, err := Run(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %q", cfg, err, name)
		}
	}
}

func TestParseDatapath(t *testing.T) {
	for s, want := range map[string]string{
		"dpa:ud":                           "dpa:ud,threads=16,queue=8192",
		"dpa:uc,threads=2":                 "dpa:uc,threads=2,queue=8192",
		"dpa:ud,queue=64,port=30,threads=": "threads: want 1 to 256",
		"dpa:ud,queue=64,port=30":          "dpa:ud,threads=16,queue=64,port=30",
		"dpa:rc":                           "unknown transport",
		"dpa:":                             "unknown transport",
		"cpu":                              "unknown datapath",
		"dpa:ud,threads=0":                 "threads: want 1 to 256",
		"dpa:ud,threads=1,threads=2":       "threads twice",
		"dpa:ud,cores=2":                   `unknown key \"cores\"`,
		"dpa:ud,":                          `unknown key`,
		"dpa:ud,port=-1":                   "port: want 0 to 10000",
	} {
		d, err := ParseDatapath(s)
		if err == nil && d.String() == want {
			continue
		}
		plain := strings.ReplaceAll(want, `\"`, `"`)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), plain) ||
			!strings.Contains(err.Error(), "valid: dpa:ud") {
			t.Errorf("%q: %v %v, want %s", s, d, err, want)
		}
	}
}

// One worker takes its cycles plus the wait per chunk. Several workers share the issue slots of a core.
func TestPace(t *testing.T) {
	for s, want := range map[string]float64{
		"dpa:uc,threads=1":         598,
		"dpa:ud,threads=1":         1084 + 234,
		"dpa:uc,threads=16":        66,
		"dpa:uc,threads=16,port=1": 66,
	} {
		d, err := ParseDatapath(s)
		if err != nil {
			t.Fatal(err)
		}
		ps, err := d.Pace(4096)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(ps) * ClockHz / 1e12; math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: %.1f cycles per chunk, want %.0f", s, got, want)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	cfg := small(UD)
	cfg.Threads = 64
	for b.Loop() {
		if _, err := Run(cfg); err != nil {
			b.Fatal(err)
		}
	}
}
