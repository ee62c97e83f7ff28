package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lukechampine.com/blake3"
)

// one sends to one receiver and returns the results.
func one(t *testing.T, so SendOptions, ro ReceiveOptions) (sendResult, recvResult) {
	t.Helper()
	if so.Segment == 0 {
		so.Segment = faultSegment
	}
	so.Timeout = testTimeout
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := serve(ctx, t, so)
	r := <-b.receive(t.Context(), ro)
	if r.err != nil {
		cancel() // a sender waits for another receiver
	}
	return <-b.sent, r
}

// makeTree writes a directory with everything that a transfer keeps.
func makeTree(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "tree")
	write(t, nil, src, "empty")
	write(t, random(3*faultSegment+17, 1), src, "a", "large")
	for i := range 200 {
		write(t, random(i*7, uint64(i)), src, "a", "small", fmt.Sprint(i))
	}
	write(t, []byte("x"), src, "not UTF-8: \xff\xfe\n", "\x01 \"quoted\"")
	write(t, []byte("secret"), src, "mode")
	for name, mode := range map[string]fs.FileMode{"mode": 0o4750 | fs.ModeSetuid, "a/small": 0o555, "empty": 0o400} {
		if err := os.Chmod(filepath.Join(src, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(src, "a/small"), 0o755) })
	if err := os.Mkdir(filepath.Join(src, "empty dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(src, "a/large"), filepath.Join(src, "hard link")); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "a/large", "a/up": "../mode", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(src, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{1 << 20, 5 << 20} {
		if _, err := f.WriteAt(random(100_000, 8), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(64<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(write(t, nil, src, "hole"), 3<<20); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1_234_567_890, 123_456_000)
	for _, name := range []string{"a/large", "a/small", "mode"} {
		if err := os.Chtimes(filepath.Join(src, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	return src
}

// describe lists a tree: names, modes, times, contents and links.
func describe(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		line := fmt.Sprintf("%q %v", rel, info.Mode()&^fs.ModeSetuid)
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			_, linked := inodeOf(info)
			line += fmt.Sprintf(" %d %x linked=%v %v", len(b), blake3.Sum256(b), linked, info.ModTime().UnixNano())
		case info.IsDir():
			line += fmt.Sprint(" ", info.ModTime().UnixNano())
		default:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTree(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has neither such modes nor such names")
	}
	src, dst := makeTree(t), t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dst, "tree/a/small"), 0o755) })
	for _, o := range []SendOptions{{}, {Compress: true}} {
		o.Paths = []string{src}
		s, r := one(t, o, ReceiveOptions{Dir: dst, Verify: true})
		if s.err != nil || r.err != nil {
			t.Fatal(s.err, r.err)
		}
		got, want := describe(t, filepath.Join(dst, "tree")), describe(t, src)
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		info, err := os.Stat(filepath.Join(dst, "tree/sparse"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := dataExtents(filepath.Join(dst, "tree/sparse"), info)
		if runtime.GOOS == "linux" && (err != nil || len(x) == 0) {
			t.Errorf("the file has no holes: %v, %v", x, err)
		}
		if info, err = os.Stat(filepath.Join(dst, "tree/hole")); err != nil {
			t.Fatal(err)
		}
		x, err = dataExtents(filepath.Join(dst, "tree/hole"), info)
		if runtime.GOOS == "linux" && (err != nil || x == nil || len(x) > 0) {
			t.Errorf("the file is not one hole: %v, %v", x, err)
		}
		if _, err := os.Stat(filepath.Join(dst, stagingDir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the staging directory is left: %v", err)
		}
	}
	// The second transfer found everything in place.
	s, r := one(t, SendOptions{Paths: []string{src}}, ReceiveOptions{Dir: dst})
	if s.err != nil || r.err != nil || r.res.Received != 0 || r.res.Resumed != r.res.Bytes {
		t.Errorf("%v, %v, %+v", s.err, r.err, r.res)
	}
	// One byte of the large file differs: only its segment is sent, and the hard link stays one.
	large := filepath.Join(dst, "tree/a/large")
	b, err := os.ReadFile(large)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := os.WriteFile(large, b, 0o644); err != nil {
		t.Fatal(err)
	}
	s, r = one(t, SendOptions{Paths: []string{src}}, ReceiveOptions{Dir: dst})
	if s.err != nil || r.err != nil || r.res.Received == 0 || r.res.Received > faultSegment {
		t.Errorf("%v, %v, %+v", s.err, r.err, r.res)
	}
	if got, want := describe(t, filepath.Join(dst, "tree")), describe(t, src); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPatterns(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for _, name := range []string{"a.bin", "b.txt", "d/c.bin", "d/e.tmp", "logs/f.bin", "g/h.txt"} {
		write(t, []byte(name), src, name)
	}
	s, r := one(t, SendOptions{
		Paths: []string{src + "/."}, Include: []string{"*.bin", "g/*"}, Exclude: []string{"logs"},
	}, ReceiveOptions{Dir: dst})
	if s.err != nil || r.err != nil {
		t.Fatal(s.err, r.err)
	}
	var got []string
	_ = filepath.WalkDir(dst, func(p string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			rel, _ := filepath.Rel(dst, p)
			got = append(got, filepath.ToSlash(rel))
		}
		return nil
	})
	if want := []string{"a.bin", "d/c.bin", "g/h.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// pipeOptions are those of a pipe to two receivers.
func pipeOptions(data []byte) SendOptions {
	return SendOptions{Stdin: bytes.NewReader(data), To: 2, Segment: faultSegment, Timeout: testTimeout}
}

func TestPipe(t *testing.T) {
	for _, n := range []int{0, 1, faultSegment, 10*faultSegment + 5} {
		data := random(n, 3)
		dst := t.TempDir()
		var out bytes.Buffer
		b := serve(t.Context(), t, pipeOptions(data))
		dir := b.receive(t.Context(), ReceiveOptions{Dir: dst, Verify: true})
		pipe := b.receive(t.Context(), ReceiveOptions{Stdout: &out})
		for _, ch := range []<-chan recvResult{dir, pipe} {
			if r := <-ch; r.err != nil || r.res.Bytes != int64(n) {
				t.Errorf("%d bytes: %v, %+v", n, r.err, r.res)
			}
		}
		if s := <-b.sent; s.err != nil {
			t.Error(s.err)
		}
		wantSame(t, filepath.Join(dst, "stdin"), data)
		if !bytes.Equal(out.Bytes(), data) {
			t.Errorf("standard output has %d other bytes, want %d", out.Len(), n)
		}
	}
}

// A receiver that is lost from a pipe does not harm the other one, although the pipe cannot be read again.
func TestPipeLosesReceiver(t *testing.T) {
	data := random(faultSize, 3)
	dst := t.TempDir()
	var out bytes.Buffer
	b := serve(t.Context(), t, pipeOptions(data))
	bad := b.receive(t.Context(), withFault(ReceiveOptions{Dir: dst, Retry: -1}, func(n int) error {
		if n > 5 {
			return errors.New("broken")
		}
		return nil
	}))
	good := b.receive(t.Context(), ReceiveOptions{Stdout: &out})
	if r := <-bad; r.err == nil {
		t.Error("no error")
	}
	if r := <-good; r.err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%v, %d bytes", r.err, out.Len())
	}
	if s := <-b.sent; !errors.Is(s.err, ErrIncomplete) {
		t.Error(s.err)
	}
}

// A file on standard output, with a late receiver that needs it in order.
func TestFileToStdout(t *testing.T) {
	data := random(faultSize, 3)
	var out bytes.Buffer
	s, r := one(t, SendOptions{Paths: []string{write(t, data, t.TempDir(), "file")}}, ReceiveOptions{Stdout: &out})
	if s.err != nil || r.err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Error(s.err, r.err, out.Len())
	}
	_, r = one(t, SendOptions{Paths: []string{makeTree(t)}}, ReceiveOptions{Stdout: &out})
	if !errors.Is(r.err, ErrInput) {
		t.Error(r.err)
	}
}

// A source that changes is an error on both sides, and leaves no file.
func TestChangedSource(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	name := write(t, random(faultSize, 3), src, "file")
	so := SendOptions{Paths: []string{name}, Events: func(e Event) {
		if e.Event == EventStart {
			if err := os.WriteFile(name, random(faultSize, 4), 0o644); err != nil {
				t.Error(err)
			}
		}
	}}
	s, r := one(t, so, ReceiveOptions{Dir: dst})
	if !errors.Is(s.err, ErrChanged) || !errors.Is(r.err, ErrRefused) {
		t.Error(s.err, r.err)
	}
	if _, err := os.Stat(filepath.Join(dst, "file")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestDevicesAreRefused(t *testing.T) {
	if _, err := os.Stat("/dev/null"); err != nil {
		t.Skip("no /dev/null here")
	}
	for _, paths := range [][]string{{"/dev/null"}, {filepath.Join(t.TempDir(), "nothing")}} {
		if _, err := Send(t.Context(), SendOptions{Paths: paths}); !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", paths, err)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	_, err := DryRun(t.Context(), SendOptions{Paths: []string{dir}})
	if !errors.Is(err, ErrUnsafe) || !errors.Is(err, ErrInput) {
		t.Error(err)
	}
}
