package napi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// change changes the one record of a registry.
func change(t *testing.T, dir string, f func(*record)) {
	t.Helper()
	path := onlyFile(t, dir)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rec := new(record)
	if err := json.Unmarshal(text, rec); err != nil {
		t.Fatal(err)
	}
	f(rec)
	if text, err = json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file of another boot, namespace or device says nothing about this interface.
func TestStale(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	for what, f := range map[string]func(*record){
		"boot":      func(rec *record) { rec.Boot = "00000000-0000-0000-0000-000000000000" },
		"namespace": func(rec *record) { rec.Namespace++ },
		"device":    func(rec *record) { rec.Device++ },
	} {
		p := startProcess(t, dir)
		p.do("join")
		p.kill()
		change(t, dir, func(rec *record) { f(rec); rec.Saved = applied })
		dev, err := openDevice(ifi)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.restore(before); err != nil {
			t.Error(err)
		}
		dev.close()
		undo := mustDedicate(t, dir, ifi)
		checkSettings(t, ifi, applied, "joined with a file of another "+what)
		undo()
		checkSettings(t, ifi, before, "left with a file of another "+what)
		checkFiles(t, dir, 0)
	}
}

// A machine that crashed may leave a file without contents, or one that was never finished.
func TestDamaged(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	undo := mustDedicate(t, dir, ifi)
	path := onlyFile(t, dir)
	undo()
	for name, text := range map[string]string{path: "", path + ".new": `{"Boot"`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	undo = mustDedicate(t, dir, ifi)
	checkSettings(t, ifi, applied, "joined")
	undo()
	checkSettings(t, ifi, before, "left")
	checkFiles(t, dir, 0)
}

// A registry that others may have written to is not used.
func TestRegistryNotPrivate(t *testing.T) {
	ifi := veth(t)
	before := settingsOf(t, ifi)
	for what, f := range map[string]func(dir string) error{
		"not a directory": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"mode 0755":       func(dir string) error { return os.Mkdir(dir, 0o755) },
		"belongs to user 1": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chown(dir, 1, 1)
		},
		"no such file": func(dir string) error { return os.Remove(filepath.Dir(dir)) },
		// With O_DIRECTORY and O_NOFOLLOW, open says the same of a symbolic link to a directory.
		"not a directory ": func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		dir := registryDir(t)
		if err := f(dir); err != nil {
			t.Fatal(err)
		}
		_, err := dedicate(dir, ifi, []int{0})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", what, err)
		}
		checkSettings(t, ifi, before, what)
	}
}

// A file that someone else may have written is not used.
func TestFileNotPrivate(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	undo := mustDedicate(t, dir, ifi)
	path := onlyFile(t, dir)
	undo()
	for what, f := range map[string]func() error{
		"too many levels of symbolic links": func() error { return os.Symlink("/dev/null", path) },
		"mode 0644":                         func() error { return os.WriteFile(path, nil, 0o644) },
		"belongs to user 1": func() error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 1, 1)
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		_, err := dedicate(dir, ifi, []int{0})
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		checkSettings(t, ifi, before, what)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A lock that is not given back ends in an error, not in a hang.
func TestRegistryLocked(t *testing.T) {
	dir := registryDir(t)
	r, err := openRegistry(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openRegistry(dir, 0); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second lock: %v", err)
	}
	unlock(r)
	if r, err = openRegistry(dir, 0); err != nil {
		t.Fatal(err)
	}
	unlock(r)
}
