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
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		guest() // does not return
	}
	skip := flag.Bool("skip", false, "report missing QEMU or kernel, and exit with status 0")
	run := flag.String("run", "", "run only tests that match this")
	race := flag.Bool("race", false, "use the race detector, which takes several times as long")
	limit := flag.Duration("time", 10*time.Minute, "limit for the guest, which takes a minute or two on an idle machine")
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
type missingError struct{ error }

func missing(format string, args ...any) error { return &missingError{fmt.Errorf(format, args...)} }

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
	kernel, err := findKernel(cache)
	if err != nil {
		return err
	}
	step("build")
	if err := build(work, race); err != nil {
		return err
	}
	step("initramfs")
	initrd := filepath.Join(work, "initrd")
	if err := pack(initrd, work, kernel, run, limit); err != nil {
		return err
	}
	step("boot " + filepath.Base(kernel))
	if err := boot(filepath.Join(kernel, "image"), initrd, limit); err != nil {
		return err
	}
	step("passed")
	return nil
}

// pack writes the initramfs.
func pack(path, work, kernel, run string, limit time.Duration) error {
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
	order, err := os.ReadFile(filepath.Join(kernel, "order"))
	if err != nil {
		return err
	}
	a.text("modules/order", string(order))
	for name := range strings.FieldsSeq(string(order)) {
		a.file("modules/"+name, filepath.Join(kernel, name))
	}
	early := max(limit-20*time.Second, limit/2) // for a dump of goroutines that hang
	a.text("etc/args", "-test.v\n-test.failfast\n-test.timeout\n"+early.String()+"\n-test.run\n"+run)
	// The guest resolves only its own name.
	a.text("etc/hosts", "127.0.0.1 localhost\n")
	a.end()
	if a.err != nil {
		return a.err
	}
	return f.Close()
}
