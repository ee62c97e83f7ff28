//go:build linux

// Command verbsguest runs the tests of the verbs fabric on Soft-RoCE, in Debian's kernel, under
// QEMU. It needs no RDMA hardware and no KVM, and root only to install missing packages.
//
// It fetches a kernel with apt-get, unpacks it without installing it, and builds the test binary
// and the command statically. It packs them with the modules into an initramfs, boots, and exits
// with the status of the tests. It caches downloads in ~/.cache/allcast-ci. In the guest, the
// same program is /init.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		guest() // does not return
	}
	skip := flag.Bool("skip", false, "where QEMU or a kernel cannot be had, say so and end with status 0")
	run := flag.String("run", "", "only tests that match this")
	race := flag.Bool("race", false, "with the race detector, which takes several times as long")
	limit := flag.Duration("time", 10*time.Minute, "for the guest, which takes a minute or two where nothing else runs")
	flag.Parse()
	cache, err := os.UserCacheDir()
	if err == nil {
		err = test(filepath.Join(cache, "allcast-ci", "verbs"), *run, *race, *limit)
	}
	switch missing := (*missingError)(nil); {
	case err == nil:
	case errors.As(err, &missing) && *skip:
		say("skipped: %v", err)
	default:
		say("%v", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }

// missingError reports that this machine lacks something that the tests need.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what }

func missing(format string, args ...any) error { return &missingError{fmt.Sprintf(format, args...)} }

// test builds the guest, boots it and checks the verdict.
func test(cache, run string, race bool, limit time.Duration) error {
	begin := time.Now()
	step := func(what string) { say("[%3.0fs] %s", time.Since(begin).Seconds(), what) }
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "verbsguest")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	step("packages")
	if err := packages(work); err != nil {
		return err
	}
	step("kernel")
	k, err := findKernel(cache)
	if err != nil {
		return err
	}
	step("build")
	if err := build(work, race); err != nil {
		return err
	}
	step("initramfs")
	initrd := filepath.Join(work, "initrd")
	if err := pack(initrd, work, k, run, limit); err != nil {
		return err
	}
	step("boot " + filepath.Base(k.dir))
	err = boot(k.image, initrd, limit, os.Stdout)
	if err == nil {
		step("passed")
	}
	return err
}

// pack writes the initramfs.
func pack(path, work string, k *kernel, run string, limit time.Duration) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	a := &archive{w: f}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "modules", "etc"} {
		a.dir(dir)
	}
	for _, file := range []string{"init", "allcast", "verbs.test"} {
		a.file(file, filepath.Join(work, file))
	}
	order := ""
	for _, m := range k.modules {
		a.file("modules/"+filepath.Base(m), m)
		order += filepath.Base(m) + "\n"
	}
	a.text("modules/order", order)
	a.text("etc/run", run)
	a.text("etc/limit", max(limit-20*time.Second, limit/2).String()) // early enough for a dump of goroutines that hang
	// The guest resolves only its own name.
	a.text("etc/hosts", "127.0.0.1 localhost\n")
	a.end()
	if a.err != nil {
		return a.err
	}
	return f.Close()
}

// lines is a writer that keeps the last line with a given prefix.
type lines struct {
	out  io.Writer
	line []byte
	seen func(line string)
}

func (l *lines) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			l.line = append(l.line, c)
			continue
		}
		l.seen(string(l.line))
		l.line = l.line[:0]
	}
	return l.out.Write(b)
}
