package settings

import (
	"io"
	"log/slog"
	"os"
)

// LevelTrace is below debug. At this level the engine logs every event of the flight recorder.
const LevelTrace = slog.LevelDebug - 4

var levels = map[string]slog.Level{
	"warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug, "trace": LevelTrace,
}

// Stderr gets log messages by default. A write to os.Stderr ends the process if standard error is a broken pipe, which
// the C library must not do to its host.
var Stderr io.Writer = os.Stderr

// newLogger logs to Stderr.
func newLogger(level slog.Level, version string) *slog.Logger {
	h := slog.NewTextHandler(Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: nameTrace})
	return slog.New(h).With("allcast", version)
}

// nameTrace names a level that slog does not know.
func nameTrace(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey && a.Value.Any() == LevelTrace {
		a.Value = slog.StringValue("TRACE")
	}
	return a
}
