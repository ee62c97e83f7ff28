// Command release builds the files of a release: static binaries, their checksums, a bill of materials and the
// definition of a container image. It needs no network, and the same commit gives the same bytes with the same Go.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast"
)

// platforms lists what a release is built for.
var platforms = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
}

const (
	command       = "github.com/allcast/allcast/cmd/allcast"
	buildVariable = command + "/internal/cli."
	containerFile = "packaging/Containerfile"
	checksums     = "SHA256SUMS"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	out := flag.String("out", filepath.Join("bin", "release"), "directory to write")
	only := flag.String("only", "", "build only for these platforms, separated by commas, such as linux/amd64")
	twice := flag.Bool("twice", false, "build again from a copy in another directory, and compare")
	cold := flag.Bool("cold", false, "with -twice: without a build cache, which takes some minutes")
	flag.Parse()
	r := release{platforms: platforms, out: *out}
	if *only != "" {
		r.platforms = strings.Split(*only, ",")
	}
	err := r.check(flag.Args())
	if err == nil {
		err = r.run(os.Stdout, *twice, *cold)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// release is a run of this program.
type release struct {
	platforms []string
	out       string
	commit    commit
}

// commit is what the binaries say about their source.
type commit struct {
	revision string // with "-modified" if the checkout differs; empty outside a checkout
	time     time.Time
}

func (r *release) check(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	for _, p := range r.platforms {
		if !slices.Contains(platforms, p) {
			return fmt.Errorf("unknown platform %q; valid: %s", p, strings.Join(platforms, ", "))
		}
	}
	if _, err := os.Stat(containerFile); err != nil {
		return fmt.Errorf("run this program in the root of the repository: %w", err)
	}
	return nil
}

func (r *release) run(w io.Writer, twice, cold bool) (err error) {
	if r.commit, err = readCommit(); err != nil {
		return err
	}
	if strings.HasSuffix(r.commit.revision, modified) {
		_, _ = fmt.Fprintln(w, "the checkout has changes that are not committed; the binaries will say so")
	}
	if err := r.write(".", r.out, nil); err != nil {
		return err
	}
	if twice {
		if err := r.compare(w, cold); err != nil {
			return err
		}
	}
	sums, err := os.ReadFile(filepath.Join(r.out, checksums))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%sallcast %s is in %s\n", sums, allcast.Version, r.out)
	return err
}

// write builds all files of a release from a source directory. The output directory appears when it is complete.
func (r *release) write(source, out string, env []string) error {
	temp := out + ".tmp"
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	full, err := filepath.Abs(temp)
	if err != nil {
		return err
	}
	var binaries []string
	for _, p := range r.platforms {
		name := binaryName(p)
		if err := r.build(source, filepath.Join(full, name), p, env); err != nil {
			return err
		}
		binaries = append(binaries, name)
	}
	bom, err := r.bill(temp, binaries)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(temp, bomName), bom, 0o666); err != nil {
		return err
	}
	for _, path := range []string{containerFile, "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(source, path))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(temp, filepath.Base(path)), text, 0o666); err != nil {
			return err
		}
	}
	if err := writeSums(temp); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(temp, out)
}

func binaryName(platform string) string {
	name := "allcast-" + strings.ReplaceAll(platform, "/", "-")
	if strings.HasPrefix(platform, "windows/") {
		name += ".exe"
	}
	return name
}

// build compiles the command for a platform.
func (r *release) build(source, out, platform string, env []string) error {
	goos, goarch, _ := strings.Cut(platform, "/")
	flags := "-s -w -buildid="
	if r.commit.revision != "" {
		flags += fmt.Sprintf(" -X %srevision=%s -X %srevisionTime=%s",
			buildVariable, r.commit.revision, buildVariable, r.commit.time.Format(time.RFC3339))
	}
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("finding the cache of modules: %w", err)
	}
	// The stamp of -buildvcs would depend on the kind of checkout.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", flags, "-o", out, command)
	cmd.Dir = source
	cmd.Env = append(slices.Concat(os.Environ(), env),
		"GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOENV=off", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off",
		"GOMODCACHE="+strings.TrimSpace(string(modules)))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w\n%s", platform, err, text)
	}
	return nil
}

const modified = "-modified"

// readCommit describes the checkout, or returns a zero commit for sources without one.
func readCommit() (commit, error) {
	if _, err := os.Stat(".git"); err != nil {
		return commit{}, nil //nolint:nilerr // sources without a checkout
	}
	text, err := git("log", "-1", "--format=%H %cI")
	if err != nil {
		return commit{}, err
	}
	hash, when, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return commit{}, err
	}
	status, err := git("status", "--porcelain")
	if err != nil {
		return commit{}, err
	}
	if status != "" {
		hash += modified
	}
	return commit{hash, at.UTC()}, nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// writeSums writes the checksums of all files of a directory, in the format of sha256sum.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		sum, err := digest(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksums), sums.Bytes(), 0o666)
}

func digest(path string) (string, error) {
	text, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
