//go:build linux

// Command transfer compares allcast send and recv with UFTP and with a plain TCP fan-out, in a lab with one switch. All
// files are on a tmpfs. Contestants take turns, and times include starting all processes and finding the receivers.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	if os.Getenv(rankVariable) != "" {
		if err := rank(); err != nil {
			log.Fatal(err)
		}
		return
	}
	b := &bench{}
	flag.StringVar(&b.parts, "parts", "fast,slow,small,loss", "comparisons, separated by commas: fast, slow, small, loss")
	flag.IntVar(&b.rounds, "rounds", 3, "number of rounds")
	flag.Int64Var(&b.bytes, "bytes", 256<<20, "bytes of the large file")
	flag.IntVar(&b.files, "files", 100_000, "number of small files")
	flag.StringVar(&b.rate, "rate", "200mbit", "rate of the links, except in the part fast")
	flag.StringVar(&b.tmpfs, "dir", "/dev/shm", "directory for all files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// bench is the configuration and the state of one run.
type bench struct {
	parts, rate, tmpfs string
	rounds, files      int
	bytes              int64
	dir, allcast       string
}

// contestant is a way to send files.
type contestant struct {
	name    string
	program string   // allcast, uftp or tcp
	args    []string // of the sender
	keyed   bool
	source  string // big or small
	hosts   int
	lab     []string // flags of the lab
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp(b.tmpfs, "transfer-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.allcast = filepath.Join(b.dir, "allcast")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", b.allcast, "./cmd/allcast").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	if err := b.makeSources(); err != nil {
		return err
	}
	slow := []string{"--rate", b.rate}
	for part := range strings.SplitSeq(b.parts, ",") {
		var all []contestant
		switch part {
		case "fast":
			all = []contestant{
				{name: "allcast", program: "allcast", source: "big", hosts: 8},
				{name: "allcast, encrypted", program: "allcast", source: "big", hosts: 8, keyed: true},
			}
			// Blocks that fill the packets of the lab; with 1400 bytes, UFTP took three times as long.
			for _, rate := range []string{"-1", "1000000", "2000000", "4000000"} {
				all = append(all, contestant{
					name: "uftp -R " + rate, program: "uftp", source: "big", hosts: 8, args: []string{"-R", rate, "-b", "8800"},
				})
			}
		case "slow":
			all = []contestant{
				{name: "allcast", program: "allcast", source: "big", hosts: 8, lab: slow},
				{name: "allcast, encrypted", program: "allcast", source: "big", hosts: 8, keyed: true, lab: slow},
				{name: "TCP fan-out", program: "tcp", source: "big", hosts: 8, lab: slow},
			}
		case "small":
			all = []contestant{
				{name: "one file", program: "allcast", source: "big", hosts: 4, lab: slow},
				{name: "small files", program: "allcast", source: "small", hosts: 4, lab: slow},
			}
		case "loss":
			all = []contestant{
				{name: "clean", program: "allcast", source: "big", hosts: 8, lab: slow},
				{name: "2 % loss", program: "allcast", source: "big", hosts: 8, lab: append(slow[:2:2], "--loss", "2%")},
			}
		default:
			return fmt.Errorf("-parts: unknown %q; valid: fast, slow, small, loss", part)
		}
		if err := b.compare(ctx, part, all); err != nil {
			return err
		}
	}
	return nil
}

// makeSources writes the large file and the directory of small files.
func (b *bench) makeSources() error {
	r := rand.NewChaCha8([32]byte{1})
	big := make([]byte, b.bytes)
	_, _ = r.Read(big) // never fails
	if err := os.WriteFile(filepath.Join(b.dir, "big"), big, 0o644); err != nil {
		return err
	}
	if !slices.Contains(strings.Split(b.parts, ","), "small") {
		return nil
	}
	sizes := rand.New(r)
	for i := range b.files {
		dir := filepath.Join(b.dir, "small", fmt.Sprint(i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		n := 1024 + sizes.IntN(15*1024+1)
		at := sizes.IntN(len(big) - n)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%06d", i)), big[at:at+n], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compare measures the contestants in turn, and prints their medians.
func (b *bench) compare(ctx context.Context, part string, all []contestant) error {
	times := make([][]float64, len(all))
	for round := range b.rounds {
		for i, c := range all {
			s, err := b.once(ctx, c)
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				log.Printf("%s, %s, round %d: %v", part, c.name, round+1, err)
				continue
			}
			times[i] = append(times[i], s)
		}
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }
	p("\n%s\n", part)
	p("%-24s %9s %9s %9s %10s\n", "contestant", "median s", "min s", "max s", "MB/s")
	for i, c := range all {
		t := times[i]
		if len(t) == 0 {
			p("%-24s failed\n", c.name)
			continue
		}
		slices.Sort(t)
		size, err := sizeOf(filepath.Join(b.dir, c.source))
		if err != nil {
			return err
		}
		median := t[len(t)/2]
		p("%-24s %9.2f %9.2f %9.2f %10.1f\n", c.name, median, t[0], t[len(t)-1], float64(size)/median/1e6)
	}
	return nil
}

func sizeOf(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// once runs one transfer in a lab and verifies all copies. It returns the time of the sender in seconds.
func (b *bench) once(ctx context.Context, c contestant) (float64, error) {
	out := filepath.Join(b.dir, "out")
	if err := os.RemoveAll(out); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	task, err := json.Marshal(task{
		Program: c.program, Allcast: b.allcast, Args: c.args, Keyed: c.keyed, Out: out,
		Source: filepath.Join(b.dir, c.source),
	})
	if err != nil {
		return 0, err
	}
	args := []string{"lab", "run", "--name", "xfer", "--topology", fmt.Sprintf("star:%d", c.hosts)}
	args = append(append(args, c.lab...), "--", self)
	cmd := exec.CommandContext(ctx, b.allcast, args...)
	cmd.Env = append(os.Environ(), rankVariable+"="+string(task))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, tail(stderr.String()))
	}
	var seconds float64
	for line := range strings.Lines(stdout.String()) {
		if n, _ := fmt.Sscanf(line, "seconds %g", &seconds); n == 1 {
			break
		}
	}
	if seconds == 0 {
		return 0, fmt.Errorf("no time in the output: %s", tail(stdout.String()))
	}
	for r := 1; r < c.hosts; r++ {
		got := filepath.Join(out, fmt.Sprint(r), c.source)
		diff, err := exec.CommandContext(ctx, "diff", "-rq", filepath.Join(b.dir, c.source), got).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("receiver %d: %w: %s", r, err, tail(string(diff)))
		}
	}
	return seconds, nil
}

// tail returns the end of a text.
func tail(s string) string { return s[max(0, len(s)-600):] }
