//go:build linux

package main

import (
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
	want := map[string][]string{ // programs and files
		"qemu-system-x86":   {"qemu-system-x86_64"},
		"libibverbs-dev":    {"/usr/include/infiniband/verbs.h", "/usr/lib/x86_64-linux-gnu/librxe-rdmav34.a"},
		"librdmacm-dev":     {"/usr/include/rdma/rdma_cma.h", "/usr/lib/x86_64-linux-gnu/librdmacm.a"},
		"libnl-route-3-dev": {"/usr/lib/x86_64-linux-gnu/libnl-route-3.a"},
		"gcc":               {"gcc"},
	}
	lacking := func() (names []string) {
		for name, parts := range want {
			if slices.ContainsFunc(parts, func(part string) bool { return !has(part) }) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	need := lacking()
	if len(need) == 0 {
		return nil
	}
	if os.Getuid() != 0 || !has("apt-get") {
		return missing("%s not installed, and only root can install it with apt-get", strings.Join(need, ", "))
	}
	say("installing %s", strings.Join(need, ", "))
	if err := run(work, "apt-get", "update", "-qq"); err != nil {
		return &missingError{err}
	}
	args := append([]string{"install", "-qq", "--no-install-recommends", "-y"}, need...)
	if err := run(work, "apt-get", args...); err != nil {
		return &missingError{err}
	}
	if still := lacking(); len(still) > 0 {
		return missing("%s is installed, and does not have what we need of it", strings.Join(still, ", "))
	}
	return nil
}

// has reports whether this machine has a program, or a file with an absolute path.
func has(name string) bool {
	_, err := exec.LookPath(name)
	if filepath.IsAbs(name) {
		_, err = os.Stat(name)
	}
	return err == nil
}

func command(dir, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return c
}

// run runs a program. Its error has the end of the program's output.
func run(dir, name string, args ...string) error {
	out, err := command(dir, name, args...).CombinedOutput()
	if err != nil {
		last := strings.Split(strings.TrimSpace(string(out)), "\n")
		last = last[max(0, len(last)-3):]
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.Join(last, "; "))
	}
	return nil
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
