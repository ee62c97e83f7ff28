package paper

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// recorded returns the verdicts of the registry.
func recorded() map[string]Verdict {
	verdicts := make(map[string]Verdict)
	for _, s := range Subjects() {
		verdicts[s.ID] = s.Recorded
	}
	return verdicts
}

// program writes a program that prints one line.
func program(t *testing.T, line string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "allcast")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+line+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// broadcastLine is the output of a Broadcast of 1 GB that takes a number of microseconds.
func broadcastLine(us float64) string {
	return fmt.Sprintf(`{"bytes":1000000000,"wrong":0,"time_us":{"avg":1,"min":%g}}`, us)
}

func TestAcceleratorEntries(t *testing.T) {
	if testenv.Race {
		t.Skip("about a hundred runs of the model: only without the race detector")
	}
	self := program(t, broadcastLine(400_000)) // 20 Gbit/s
	first, second := &Env{Seed: 3, Quick: true, Self: self}, &Env{Seed: 3, Quick: true, Self: self}
	for _, entry := range acceleratorEntries {
		a, err := entry.Run(context.Background(), first)
		if err != nil {
			t.Errorf("%s: %v", entry.ID, err)
			continue
		}
		if want := recorded()[entry.ID]; a.Verdict != want {
			t.Errorf("%s: %v, recorded is %v: %s", entry.ID, a.Verdict, want, a.Ours)
		}
		if a.Ours == "" || a.Command == "" || len(a.Tables) == 0 || len(a.Figures) == 0 {
			t.Errorf("%s: a part is missing: %+v", entry.ID, a)
		}
		for _, table := range a.Tables {
			checkTable(t, entry.ID, table)
		}
		if b, err := entry.Run(context.Background(), second); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs differ (%v):\n%+v\n%+v", entry.ID, err, a, b)
		}
	}
}

func checkTable(t *testing.T, id string, table Table) {
	t.Helper()
	for _, row := range table.Rows {
		if len(row) != len(table.Columns) {
			t.Errorf("%s: table %s: %d cells for %d columns", id, table.Name, len(row), len(table.Columns))
		}
		for _, v := range row {
			switch v.(type) {
			case int, int64, float64, string:
			default:
				t.Errorf("%s: table %s has a %T", id, table.Name, v)
			}
		}
	}
}

// The verdict about a CPU core follows from what was measured.
func TestCPUCoreIsMeasured(t *testing.T) {
	for us, want := range map[float64]Verdict{400_000: Hit, 20_000: Miss} { // 20 and 400 Gbit/s
		out, err := figure5(context.Background(), &Env{Self: program(t, broadcastLine(us))})
		if err != nil || out.Verdict != want || !out.Measured {
			t.Errorf("%.0f us: %+v, %v", us, out, err)
		}
	}
	out, err := figure5(context.Background(), &Env{})
	if err != nil || out.Verdict != CannotShow || len(out.LeftOut) == 0 || out.Measured {
		t.Errorf("without a program: %+v, %v", out, err)
	}
}

func TestReceiveChecksTheOutput(t *testing.T) {
	for want, line := range map[string]string{
		"data is wrong":   `{"bytes":1,"wrong":1,"time_us":{"min":1}}`,
		"time is missing": `{"bytes":1,"wrong":0}`,
		"output":          "none",
	} {
		_, err := receive(context.Background(), program(t, line), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
