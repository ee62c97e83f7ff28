//go:build unix

package allcast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/testenv"
)

// inspect asks a rank of this process for its state.
func inspect(ctx context.Context, rank int) (*observe.State, error) {
	for _, s := range observe.Find() {
		if s.Rank == rank {
			return observe.Ask(ctx, observe.Addr{Network: "unix", Address: s.Path}, observe.Size)
		}
	}
	return nil, fmt.Errorf("rank %d was not found", rank)
}

// A sharedLog collects the log of all ranks.
type sharedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Each level logs its own messages and those of the levels above it, and no others.
func TestLogLevels(t *testing.T) {
	for _, c := range []struct {
		level     slog.Level
		want, not []string
	}{
		{
			slog.LevelWarn,
			[]string{"operation failed", "culprit="},
			[]string{"msg=joined", "operation started", "msg=phase"},
		},
		{
			slog.LevelInfo,
			[]string{"msg=joined", "interface=", "multicast=", "operation failed"},
			[]string{"operation started", "msg=phase"},
		},
		{
			slog.LevelDebug,
			[]string{
				"msg=joined", "algorithm chosen", "the call", "the cost model", "operation started", "operation ended",
			},
			[]string{"msg=phase"},
		},
		{slog.LevelDebug - 4, []string{"operation started", "msg=phase", "detail=multicast", "msg=received"}, nil},
	} {
		var log sharedLog
		o := allcast.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: c.level}))}
		allcasttest.Run(t, 2, o, func(ctx context.Context, c *allcast.Comm) error {
			if err := c.Broadcast(ctx, make([]byte, large), 0, allcast.WithAlgorithm("mcast")); err != nil {
				return err
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			err := c.Broadcast(ctx, make([]byte, large+c.Rank()), 0, allcast.WithAlgorithm("mcast"))
			if !errors.Is(err, allcast.ErrMismatch) {
				return fmt.Errorf("different calls: %w", err)
			}
			return nil
		})
		text := log.String()
		for line := range strings.Lines(text) {
			if n := strings.Count(line, " rank="); n != 1 {
				t.Errorf("%v: a record has %d ranks: %s", c.level, n, line)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no message with %q:\n%s", c.level, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%v: a message with %q:\n%s", c.level, not, text)
			}
		}
	}
}

func TestMetricsAreServed(t *testing.T) {
	testenv.SocketDir(t)
	t.Setenv("ALLCAST_METRICS", "127.0.0.1:0")
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		if err := c.Allgather(ctx, nil, make([]byte, 3000), allcast.WithAlgorithm("ring")); err != nil {
			return err
		}
		var mine bytes.Buffer
		s, err := inspect(ctx, c.Rank())
		if err := errors.Join(err, c.WriteMetrics(&mine)); err != nil {
			return err
		}
		resp, err := http.Get("http://" + s.Metrics + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		for _, want := range []string{
			fmt.Sprintf(`allcast_operations_total{rank="%d",op="allgather",algo="ring",outcome="ok"} 1`, c.Rank()),
			fmt.Sprintf(`allcast_operations_running{rank="%d"} 0`, c.Rank()),
			fmt.Sprintf(`allcast_lost_ranks{rank="%d"} 0`, c.Rank()),
			fmt.Sprintf(`allcast_rejected_connections_total{rank="%d"} 0`, c.Rank()),
			fmt.Sprintf(`allcast_repaired_bytes_total{rank="%d"} 0`, c.Rank()),
		} {
			if !bytes.Contains(text, []byte(want+"\n")) || !strings.Contains(mine.String(), want+"\n") {
				err = errors.Join(err, fmt.Errorf("no line %s in\n%s\nor\n%s", want, text, mine.String()))
			}
		}
		return errors.Join(err, c.Barrier(ctx))
	})
}

// Join fails if a variable is invalid, instead of running the job without the feature.
func TestBadObservation(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value string }{
		{"ALLCAST_METRICS", "9400"},
		{"ALLCAST_METRICS", taken.Addr().String()},
		{"ALLCAST_METRICS", "127.0.0.1:99999"},
		{"ALLCAST_INSPECT", "maybe"},
		{"ALLCAST_RECORDER", file},
		{"ALLCAST_DEBUG", "loud"},
	} {
		t.Run(c.name+"="+filepath.Base(c.value), func(t *testing.T) {
			t.Setenv(c.name, c.value)
			t.Setenv("LOCAL_RANK", "0")
			_, err := allcast.Join(t.Context(), allcast.Options{Size: 2, Rank: 1, Addr: "127.0.0.1:1"})
			if !errors.Is(err, allcast.ErrOptions) || !strings.Contains(err.Error(), c.name) {
				t.Error(err)
			}
		})
	}
	t.Setenv("ALLCAST_METRICS", ":9400")
	t.Setenv("LOCAL_RANK", "first")
	_, err = allcast.Join(t.Context(), allcast.Options{Size: 1})
	if !errors.Is(err, allcast.ErrOptions) || !strings.Contains(err.Error(), "LOCAL_RANK") {
		t.Error(err)
	}
}

// Each rank records a failure once, however many calls it ends.
func TestRecorderFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ALLCAST_RECORDER", dir)
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		first := c.Broadcast(ctx, make([]byte, large+c.Rank()/2), 0, allcast.WithAlgorithm("mcast"))
		second := c.Barrier(ctx)
		if !errors.Is(first, allcast.ErrMismatch) || !errors.Is(second, allcast.ErrMismatch) {
			return fmt.Errorf("different calls: %w, %w", first, second)
		}
		return nil
	})
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d observe.Dump
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("allcast-%s-rank%d-pid%d-1.json", d.Job, d.Rank, os.Getpid())
		if filepath.Base(path) != want {
			t.Errorf("%s, want %s", filepath.Base(path), want)
		}
		f := d.Failure
		if f.Op != "broadcast" || f.Reason != "mismatched calls" || f.Culprit < 0 || len(d.Events) == 0 {
			t.Errorf("%s: %+v, %d events", path, f, len(d.Events))
		}
	}
}

func TestInspectSockets(t *testing.T) {
	testenv.SocketDir(t)
	for _, on := range []bool{true, false} {
		want := 0
		if on {
			want = 2
		} else {
			t.Setenv("ALLCAST_INSPECT", "off")
		}
		allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
			if found := observe.Find(); len(found) != want {
				t.Errorf("%d sockets, want %d", len(found), want)
			}
			return c.Barrier(ctx)
		})
		if found := observe.Find(); len(found) != 0 {
			t.Errorf("left behind: %v", found)
		}
	}
}

// A job runs even if it cannot create a socket for inspection.
func TestInspectWithoutSocket(t *testing.T) {
	none := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	t.Setenv("XDG_RUNTIME_DIR", none)
	t.Setenv("TMPDIR", none)
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error { return c.Barrier(ctx) })
}
