package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/inc"
)

// The limits of an aggregator: jobs, memory and the receive buffer.
func TestQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"jobs":       {Config{MaxJobs: 1}, "--max-jobs"},
		"memory":     {Config{Memory: 1 << 20, JobMemory: 1 << 20, Comms: 1}, "--memory"},
		"job memory": {Config{JobMemory: 4 << 10}, "--job-memory"},
		"buffer":     {Config{Buffer: 16 << 10}, "net.core.rmem_max"},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, c.cfg)
			tree := oneLevel(t, s, 2)
			refused := ""
			for i := range 40 {
				cfg := portConfig(tree, 0)
				cfg.Session, cfg.Job, cfg.Window = uint32(i+1), fmt.Sprint(i), 1000
				_, states := openPort(t, cfg)
				if a := states.until(t, "decided", func(a inc.Aggregation) bool { return a.Why != "" }); strings.Contains(a.Why,
					"refuses") {
					refused = a.Why
					break
				}
			}
			if !strings.Contains(refused, c.want) || !strings.Contains(refused, s.Addr().String()) {
				t.Errorf("%q, want %q", refused, c.want)
			}
			st := s.State()
			if st.Reserved > st.Limit {
				t.Errorf("%d bytes of %d are reserved", st.Reserved, st.Limit)
			}
		})
	}
}

// The windows of all jobs fit the receive buffer.
func TestRoom(t *testing.T) {
	s := listen(t, Config{Buffer: 1 << 20, MaxJobs: 100})
	for i := range 40 {
		cfg := portConfig(oneLevel(t, s, 2), 0)
		cfg.Session, cfg.Job, cfg.Window = uint32(i+1), fmt.Sprint(i), 1<<20
		_, states := openPort(t, cfg)
		if a := states.until(t, "decided", func(a inc.Aggregation) bool { return a.Why != "" }); strings.Contains(a.Why,
			"refuses") {
			break
		}
	}
	total := int64(0)
	jobs := s.State().Jobs
	for _, j := range jobs {
		total += int64(j.Window) * int64(j.Children) * charge(j.Chunk)
	}
	if total > int64(ip.UsableBuffer(s.Buffer())) || len(jobs) < 3 || len(jobs) == 40 {
		t.Errorf("%d jobs have windows of %d bytes in a buffer of %d", len(jobs), total, s.Buffer())
	}
}

// The tree and the addresses of a job count as its memory.
func TestFootprint(t *testing.T) {
	s := listen(t, Config{JobMemory: 1 << 20})
	cfg := portConfig(oneLevel(t, s, 60_000), 0) // many ranks would take more than the limit
	cfg.Tree = parseTree(t, fmt.Sprintf("127.0.0.1:1=1-59999>%v;%v=0", s.Addr(), s.Addr()), 60_000)
	p, _ := openPort(t, cfg)
	if a := p.Wait(t.Context()); !says("--job-memory")(a) {
		t.Errorf("%+v", a)
	}
}

// A job alone gets a quarter of the receive buffer, and a small buffer still has room for a small window.
func TestShares(t *testing.T) {
	s := listen(t, Config{})
	session := func(room, total int64, children int, window uint32) (uint32, error) {
		s.room, s.total = room, total
		tree := oneLevel(t, s, children)
		j := &job{tree: tree, size: children, chunk: 1440, children: make([]*child, children)}
		cfg := &inc.SessionConfig{Tree: tree, Window: window, Chunk: 1440, Comms: 4}
		err := s.allot(j, cfg)
		s.memory = 0
		return j.window, err
	}
	per := 8 * charge(1440)
	for _, c := range []struct {
		room, total int64 // in chunks of all 8 children
		want        uint32
	}{
		{4000, 4000, 1000},
		{3000, 4000, 1000},
		{1000, 4000, 500},
		{10, 4000, 5},
		{8, 4000, 4},
		{7, 4000, 0},
		{8, 8, 4},
		{40, 40, 16},
		{80, 80, 20},
	} {
		got, err := session(c.room*per, c.total*per, 8, 1<<20)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%d of %d are free: a window of %d, %v; want %d", c.room, c.total, got, err, c.want)
		}
	}
}
