package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bundle writes a release whose binary is this test program.
func bundle(t *testing.T) (dir string, b bom) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "allcast-linux-amd64"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	r := release{commit: commit{"abc", time.Unix(1e9, 0).UTC()}}
	text, err := r.bill(dir, []string{"allcast-linux-amd64"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.bill(dir, []string{"allcast-linux-amd64"})
	if err != nil || string(text) != string(again) {
		t.Errorf("two bills of one binary differ, %v", err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return dir, b
}

func TestBill(t *testing.T) {
	dir, b := bundle(t)
	if b.Format != "CycloneDX" || b.Metadata.Timestamp != "2001-09-09T01:46:40Z" ||
		!regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("head of the bill: %+v", b)
	}
	sum, err := digest(filepath.Join(dir, "allcast-linux-amd64"))
	if err != nil {
		t.Fatal(err)
	}
	if f := b.Components[0]; f.Type != "file" || f.Hashes[0].Content != sum {
		t.Errorf("the binary: %+v", f)
	}
	refs := map[string]bool{b.Metadata.Component.Ref: true}
	for _, c := range b.Components {
		if refs[c.Ref] {
			t.Errorf("%s is there twice", c.Ref)
		}
		refs[c.Ref] = true
	}
	if !refs[b.Components[1].Ref] || !strings.Contains(strings.Join(keys(refs), " "), "pkg:golang/stdlib@v1.") {
		t.Errorf("no standard library in %v", keys(refs))
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("a dependency on %s, which is no component", ref)
			}
		}
	}
}

func keys(m map[string]bool) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestSums(t *testing.T) {
	dir, _ := bundle(t)
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, checksums))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{64}  allcast-linux-amd64\n$`).Match(text) {
		t.Errorf("checksums %q", text)
	}
}

func TestSame(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "x", "1")
	write(b, "x", "1")
	if err := same(io.Discard, a, b); err != nil {
		t.Error(err)
	}
	write(b, "x", "2")
	if err := same(io.Discard, a, b); err == nil || !strings.Contains(err.Error(), "differ in x") {
		t.Errorf("different files: %v", err)
	}
	write(b, "x", "1")
	write(a, "y", "1")
	if err := same(io.Discard, a, b); err == nil {
		t.Error("a missing file goes unnoticed")
	}
}

// The container file takes binaries that a release has.
func TestContainerFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", containerFile))
	if err != nil {
		t.Fatal(err)
	}
	copied := regexp.MustCompile(`(?m)^COPY (\S+) `).FindStringSubmatch(string(text))
	if copied == nil {
		t.Fatal("no COPY in the container file")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if got, want := strings.ReplaceAll(copied[1], "${TARGETARCH}", arch), binaryName("linux/"+arch); got != want {
			t.Errorf("the container file copies %s, the release has %s", got, want)
		}
	}
}
