package reproduce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const manifestFile = "manifest.json"

// Directory is an output directory that appears under its name only when it is complete. Until then its files are in a
// temporary directory beside it.
type Directory struct {
	path   string
	temp   string
	exists bool // whether there is a directory to replace
	files  []string
}

// CreateDirectory prepares an output directory. Its name must be free, or belong to an empty directory or to the
// output of an earlier run, which is replaced.
func CreateDirectory(path string) (*Directory, error) {
	d := &Directory{}
	var err error
	if d.path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(d.path); err == nil {
		d.path = target // replace the target of a symbolic link, not the link
	}
	info, err := os.Stat(d.path)
	switch {
	case err == nil && !info.IsDir():
		return nil, fmt.Errorf("%s is a file", path)
	case err == nil:
		d.exists = true
		if err := replaceable(d.path); err != nil {
			return nil, fmt.Errorf("%s %w; choose another directory", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d.temp = fmt.Sprintf("%s.%d.tmp", d.path, os.Getpid())
	if err := os.Mkdir(d.temp, 0o777); err != nil { // minus the umask
		return nil, fmt.Errorf("%s cannot be created: %w", path, errors.Unwrap(err))
	}
	return d, nil
}

// replaceable returns an error if a directory holds anything that no earlier run has written.
func replaceable(dir string) error {
	if here, err := os.Getwd(); err == nil && here == dir {
		return errors.New("is the current directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	var earlier struct { // a part of Manifest, which cannot be read back
		Program string
		Files   []string
	}
	if err != nil || json.Unmarshal(text, &earlier) != nil || earlier.Program != program {
		return errors.New("is not empty, and is not the output of an earlier run")
	}
	ours := map[string]bool{manifestFile: true}
	for _, f := range earlier.Files {
		ours[f] = true
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && !ours[filepath.ToSlash(name)] {
			return fmt.Errorf("also holds %s, which no earlier run wrote", name)
		}
		return err
	})
}

// write writes a file; its name has slashes.
func (d *Directory) write(name string, data []byte) error {
	path := filepath.Join(d.temp, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	d.files = append(d.files, name)
	return os.WriteFile(path, data, 0o666) //nolint:gosec // results are for everybody, minus the umask
}

func (d *Directory) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return d.write(name, append(text, '\n'))
}

// commit gives the complete directory its name.
func (d *Directory) commit() error {
	old := d.temp + ".old"
	if d.exists {
		if err := os.Rename(d.path, old); err != nil {
			return err
		}
	}
	if err := os.Rename(d.temp, d.path); err != nil {
		if d.exists {
			err = errors.Join(err, os.Rename(old, d.path))
		}
		return err
	}
	d.temp = ""
	return os.RemoveAll(old)
}

// Discard removes a directory that is not complete. After Write it does nothing.
func (d *Directory) Discard() {
	if d.temp != "" {
		_ = os.RemoveAll(d.temp)
		d.temp = ""
	}
}
