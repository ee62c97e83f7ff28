package rendezvous

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// lineHandler passes the text of each log record on.
type lineHandler struct {
	slog.Handler
	line func(string)
}

func (h lineHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h lineHandler) Handle(_ context.Context, r slog.Record) error {
	h.line(r.Message)
	return nil
}

// While ranks are missing, rank 0 names them again and again.
func TestReminder(t *testing.T) {
	w := newWorld(t, 8)
	remind, expired := make(chan time.Time, 1), make(chan time.Time, 1)
	var warnings []string
	w.root.Logger = slog.New(lineHandler{slog.DiscardHandler, func(s string) {
		if warnings = append(warnings, s); len(warnings) == 2 {
			expired <- time.Time{}
			return
		}
		remind <- time.Time{}
	}})
	w.root.remind, w.root.expired = &reminder{C: remind}, expired
	came := 0
	w.root.seen = func(int) {
		if came++; came == 5 {
			remind <- time.Time{}
		}
	}
	var cfgs []Config
	for _, c := range w.configs() {
		if c.Rank != 3 && c.Rank != 5 {
			cfgs = append(cfgs, c)
		}
	}
	w.join(cfgs...)
	if len(warnings) != 2 {
		t.Fatalf("%q", warnings)
	}
	for _, s := range warnings {
		if !strings.HasPrefix(s, "joining: rank 0 has waited ") || !strings.Contains(s, "6 of 8 ranks came; missing: 3, 5") {
			t.Errorf("%q", s)
		}
	}
}

// A rank that does not reach rank 0 says why.
func TestReminderOfASeeker(t *testing.T) {
	w := newWorld(t, 2)
	_ = w.root.Listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := w.config(1, 2)
	remind := make(chan time.Time, 1)
	remind <- time.Time{}
	cfg.remind = &reminder{C: remind}
	cfg.Logger = slog.New(lineHandler{slog.DiscardHandler, func(s string) {
		if !strings.Contains(s, "to reach rank 0 at "+w.addr) {
			t.Errorf("%q", s)
		}
		if strings.Contains(s, "refused") {
			cancel()
			return
		}
		remind <- time.Time{}
	}})
	if _, err := Join(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A name that does not exist ends Join at once, on all ranks. Where names appear later, it does not.
func TestUnknownName(t *testing.T) {
	name := strings.Repeat("x", 64) + ".example:9" // not a valid name, so that no name server is asked
	for rank := range 2 {
		w := newWorld(t, 2)
		cfg := w.config(rank, 2)
		cfg.Addr = name
		cfg.expired = make(chan time.Time) // never
		_, err := Join(t.Context(), cfg)
		if _, ok := errors.AsType[*net.DNSError](err); !ok || !strings.Contains(err.Error(), name[:64]) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w := newWorld(t, 2)
	cfg := w.config(1, 2)
	cfg.Addr, cfg.LateNames = name, true
	expired := make(chan time.Time, 1)
	remind := make(chan time.Time, 1)
	remind <- time.Time{}
	cfg.remind, cfg.expired = &reminder{C: remind}, expired
	cfg.Logger = slog.New(lineHandler{slog.DiscardHandler, func(s string) {
		if strings.Contains(s, "no such host") {
			expired <- time.Time{}
			return
		}
		remind <- time.Time{}
	}})
	if _, err := Join(t.Context(), cfg); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}
