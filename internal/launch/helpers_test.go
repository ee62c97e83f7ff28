//go:build unix

package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// record is a Config that runs a shell script, with the output and the pids of its ranks.
type record struct {
	Config
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	pids           []int
	onLine         func(line string)
}

func script(ranks int, text string) *record {
	r := &record{Config: Config{
		Ranks: ranks, Command: []string{"sh", "-c", text}, Notice: time.Millisecond, Grace: time.Minute,
	}}
	r.Stdout, r.Stderr = sink{r, &r.stdout}, sink{r, &r.stderr}
	r.Started = func(_, pid int) { r.pids = append(r.pids, pid) }
	return r
}

func (r *record) run(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := Run(ctx, r.Config)
	for _, pid := range r.pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still running", pid)
		}
	}
	return err
}

type sink struct {
	r *record
	b *bytes.Buffer
}

func (s sink) Write(p []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.onLine != nil {
		s.r.onLine(string(p))
	}
	return s.b.Write(p)
}

// ended waits until a process that is not our child has ended or is a zombie.
func ended(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat), ") ") // the field after the name
		if err != nil && syscall.Kill(pid, 0) != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("process %d is still running", pid)
}
