//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// packages installs missing packages: QEMU, and the headers and static libraries of a verbs
// program.
func packages(work string) error {
	if runtime.GOARCH != "amd64" {
		return missing("the guest is an amd64 machine, and this is %s", runtime.GOARCH)
	}
	want := map[string]func() bool{
		"qemu-system-x86": func() bool { return has("qemu-system-x86_64") },
		"libibverbs-dev": func() bool {
			return there("/usr/include/infiniband/verbs.h", "/usr/lib/x86_64-linux-gnu/librxe-rdmav34.a")
		},
		"librdmacm-dev": func() bool {
			return there("/usr/include/rdma/rdma_cma.h", "/usr/lib/x86_64-linux-gnu/librdmacm.a")
		},
		"libnl-route-3-dev": func() bool { return there("/usr/lib/x86_64-linux-gnu/libnl-route-3.a") },
		"gcc":               func() bool { return has("gcc") },
	}
	var need []string
	for name, here := range want {
		if !here() {
			need = append(need, name)
		}
	}
	if len(need) == 0 {
		return nil
	}
	slices.Sort(need)
	if os.Getuid() != 0 || !has("apt-get") {
		return missing("%s not installed, and only root can install it with apt-get", strings.Join(need, ", "))
	}
	say("installing %s", strings.Join(need, ", "))
	if out, err := command(work, "apt-get", "update", "-qq").CombinedOutput(); err != nil {
		return missing("apt-get update: %v: %s", err, tail(out))
	}
	args := append([]string{"install", "-qq", "--no-install-recommends", "-y"}, need...)
	if out, err := command(work, "apt-get", args...).CombinedOutput(); err != nil {
		return missing("apt-get install %s: %v: %s", strings.Join(need, " "), err, tail(out))
	}
	for name, here := range want {
		if !here() {
			return missing("%s is installed, and does not have what we need of it", name)
		}
	}
	return nil
}

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func there(files ...string) bool {
	return !slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(f); return err != nil })
}

func command(dir, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return c
}

// tail is the end of a program's output.
func tail(out []byte) string {
	all := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-3):], []byte("; ")))
}

// build builds the programs for the guest. The guest has no shared libraries, so they are linked
// statically, the provider of Soft-RoCE included.
func build(work string, race bool) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	static := []string{
		"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -DRDMA_STATIC_PROVIDERS=rxe",
		"CGO_LDFLAGS=-Wl,--start-group -l:librxe-rdmav34.a -lrdmacm -libverbs -lnl-route-3 -lnl-3 -Wl,--end-group",
	}
	flags := []string{"-tags", "verbs,netgo,osusergo", "-ldflags", `-s -w -linkmode external -extldflags "-static"`}
	tests := append([]string{"test", "-c"}, flags...)
	if race {
		tests = append(tests, "-race")
	}
	for _, b := range []struct {
		out, pkg string
		args     []string
		env      []string
	}{
		{"init", "./internal/tools/verbsguest", []string{"build", "-ldflags", "-s -w"}, []string{"CGO_ENABLED=0"}},
		{"allcast", "./cmd/allcast", append([]string{"build"}, flags...), static},
		{"verbs.test", "./internal/fabric/verbs", tests, static},
	} {
		args := append(b.args, "-buildvcs=false", "-o", filepath.Join(work, b.out), b.pkg)
		c := command(dir, "go", args...)
		c.Env = append(c.Env, b.env...)
		// The linker warns that getaddrinfo needs shared libraries, but no code calls it.
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w:\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
