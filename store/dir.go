package store

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Intervals at which Get looks for a file. NFS clients cache the absence of a file for seconds, so a shorter
// interval would not help.
const (
	firstLook = 10 * time.Millisecond
	longLook  = 500 * time.Millisecond
)

// Dir returns a store in a directory that all ranks share, such as one on NFS. Each key is a file. Set replaces a
// file by renaming another one, so Get never sees half a value. It creates the directory if necessary.
//
// Whoever can write to the directory can make ranks without a key join another job, so keep it private.
func Dir(path string) Store { return dir(path) }

type dir string

// file returns the path of a key's file. Escaping leaves no slash in the name, and the suffix keeps names such as
// ".." and the temporary files apart.
func (d dir) file(key string) string {
	return filepath.Join(string(d), url.QueryEscape(key)+".value")
}

func (d dir) Set(ctx context.Context, key string, value []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), d.file(key))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (d dir) Get(ctx context.Context, key string) ([]byte, error) {
	for wait := firstLook; ; wait = min(2*wait, longLook) {
		value, err := os.ReadFile(d.file(key))
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
