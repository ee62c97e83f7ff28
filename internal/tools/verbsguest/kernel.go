//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// wanted are the modules that the tests need; findKernel adds their dependencies. crc32_generic
// is not a dependency: Soft-RoCE requests it by name when it starts.
var wanted = []string{"crc32_generic", "rdma_rxe", "rdma_ucm", "dummy", "veth", "sch_netem"}

var imagePackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\d[^ ]*-amd64)\s*$`)

// findKernel returns the folder of the kernel that was fetched last, or fetches Debian's current one.
// The kernel for clouds has no Soft-RoCE.
func findKernel(cache string) (string, error) {
	if found, err := filepath.Glob(filepath.Join(cache, "[0-9]*", "order")); err == nil && len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return modified(a).Compare(modified(b)) })), nil
	}
	if !has("apt-get") || !has("dpkg-deb") {
		return "", missing("no kernel in %s, and no apt-get to fetch one with", cache)
	}
	name := currentKernel(cache)
	if name == "" {
		if err := run(cache, "apt-get", "update", "-qq"); err != nil {
			return "", &missingError{err}
		}
		if name = currentKernel(cache); name == "" {
			return "", missing("apt does not know Debian's linux-image-amd64")
		}
	}
	tmp, err := os.MkdirTemp(cache, "fetch")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	say("fetching %s (70 MB)", name)
	if err := run(tmp, "apt-get", "download", "-qq", name); err != nil {
		return "", &missingError{err}
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s left %v", name, debs)
	}
	root := filepath.Join(tmp, "root")
	if err := run(tmp, "dpkg-deb", "-x", debs[0], root); err != nil {
		return "", err
	}
	// Atomically: another process may fetch the same kernel.
	made := filepath.Join(tmp, strings.TrimPrefix(name, "linux-image-"))
	if err := keep(root, made); err != nil {
		return "", err
	}
	final := filepath.Join(cache, filepath.Base(made))
	if err := os.Rename(made, final); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return final, nil
}

// currentKernel names the package of Debian's current kernel; "": apt does not know it.
func currentKernel(dir string) string {
	out, _ := command(dir, "apt-cache", "depends", "linux-image-amd64").Output() // an empty output matches no kernel
	if m := imagePackage.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return ""
}

func modified(path string) time.Time {
	st, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// keep moves the needed files out of an unpacked package.
func keep(root, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("%d kernels in the package", len(images))
	}
	image, err := os.ReadFile(images[0])
	if err != nil {
		return err
	}
	// QEMU boots the plain ELF file too, without unpacking it in the guest first.
	if plain, err := unpack(image); err == nil {
		image = plain
	}
	if err := os.WriteFile(filepath.Join(dir, "image"), image, 0o644); err != nil {
		return err
	}
	order, err := order(root)
	if err != nil {
		return err
	}
	names := ""
	for _, m := range order {
		if err := os.Rename(m, filepath.Join(dir, filepath.Base(m))); err != nil {
			return err
		}
		names += filepath.Base(m) + "\n"
	}
	return os.WriteFile(filepath.Join(dir, "order"), []byte(names), 0o644)
}

// unpack finds the compressed kernel in a boot image.
func unpack(image []byte) ([]byte, error) {
	for _, c := range []struct{ magic, tool string }{
		{"\xfd7zXZ\x00", "xz"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"\x1f\x8b\x08", "gzip"},
	} {
		for at := 0; ; at++ {
			i := bytes.Index(image[at:], []byte(c.magic))
			if i < 0 {
				break
			}
			at += i
			cmd := exec.Command(c.tool, "-dc")
			cmd.Stdin = bytes.NewReader(image[at:])
			out, _ := cmd.Output() // the tool reports an error about trailing data
			if bytes.HasPrefix(out, []byte(elf.ELFMAG)) {
				return out, nil
			}
		}
	}
	return nil, errors.New("no kernel found")
}

// order lists the wanted modules, each after its dependencies.
func order(root string) ([]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "lib", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []string
	var add func(names []string) error
	add = func(names []string) error {
		for _, name := range names {
			path, ok := files[strings.ReplaceAll(name, "-", "_")]
			if !ok {
				return fmt.Errorf("the kernel has no module %s", name)
			}
			if slices.Contains(all, path) {
				continue
			}
			needs, err := depends(path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := add(needs); err != nil {
				return err
			}
			all = append(all, path)
		}
		return nil
	}
	return all, add(wanted)
}

// depends reads the dependencies of a module.
func depends(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo")
	}
	b, err := s.Data()
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(b), "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
