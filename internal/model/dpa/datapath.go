package dpa

import (
	"fmt"
	"strconv"
	"strings"
)

// Datapath is an accelerator that receives for a host in the simulator.
type Datapath struct {
	Transport Transport
	Threads   int
	Queue     int // receives posted by all workers together
	Port      int // as in Config
}

// DatapathForms describes the syntax of ParseDatapath.
const DatapathForms = "dpa:ud or dpa:uc, then any of ,threads=1..256 ,queue=ENTRIES ,port=CYCLES, " +
	"as in dpa:ud,threads=16"

// ParseDatapath parses a specification such as dpa:ud,threads=16. The default is the threads of
// one core and the paper's queue depth.
func ParseDatapath(s string) (Datapath, error) {
	d := Datapath{Threads: ThreadsPerCore, Queue: QueueDepth}
	bad := func(why string) (Datapath, error) {
		return Datapath{}, fmt.Errorf("%w: %q: %s; valid: %s", ErrConfig, s, why, DatapathForms)
	}
	rest, ok := strings.CutPrefix(s, "dpa:")
	if !ok {
		return bad("unknown datapath")
	}
	words := strings.Split(rest, ",")
	d.Transport = Transport(words[0])
	if d.Transport != UD && d.Transport != UC {
		return bad("unknown transport")
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		if seen[key] {
			return bad(key + " twice")
		}
		seen[key] = true
		if why := d.set(key, value); why != "" {
			return bad(why)
		}
	}
	return d, nil
}

// set applies one key=value. It returns what is wrong with it, or "".
func (d *Datapath) set(key, value string) string {
	field, ok := map[string]struct {
		value     *int
		low, high int
	}{"threads": {&d.Threads, 1, MaxThreads}, "queue": {&d.Queue, 1, MaxChunks}, "port": {&d.Port, 0, MaxPort}}[key]
	if !ok {
		return fmt.Sprintf("unknown key %q", key)
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < field.low || n > field.high {
		return fmt.Sprintf("%s: want %d to %d", key, field.low, field.high)
	}
	*field.value = n
	return ""
}

// String returns the specification with all values.
func (d Datapath) String() string {
	s := fmt.Sprintf("dpa:%s,threads=%d,queue=%d", d.Transport, d.Threads, d.Queue)
	if d.Port != 0 {
		s += fmt.Sprintf(",port=%d", d.Port)
	}
	return s
}

// Pace is the time in picoseconds that all workers together need per chunk when chunks are
// always available. A simulator of many hosts uses this single number instead of the model.
func (d Datapath) Pace(chunk int64) (int64, error) {
	const each = 256 // chunks per worker: enough for a steady state
	cfg := Config{
		Transport: d.Transport, Threads: d.Threads, Chunk: chunk, Buffer: each * int64(d.Threads) * chunk,
		Link: MaxLink, Queue: each, Port: int64(d.Port),
	}
	if err := cfg.check(); err != nil {
		return 0, err
	}
	m := newMachine(cfg).run()
	busy := m.end - activationCycles - notifyCycles
	return int64(float64(busy) / float64(m.processed) / ClockHz * 1e12), nil
}
