package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What lab run prints becomes a page, and what it does not print does not.
func TestLabReport(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const ports = `{"topology":"star:2","hosts":2,"switches":1,"link_bytes":400,"mcast_link_bytes":200,"ports":[` +
		`{"switch":"leaf0","port":"host0","rx":100,"tx":100},{"switch":"leaf0","port":"host1","rx":100,"tx":100}]}`
	run := func(algo string) string {
		return `{"op":"allgather","algo":"` + algo + `","ranks":2,"bytes":64,"iters":1,"time_us":{"p50":5},"wrong":0,"chunk":8956}` + "\n" + ports + "\n"
	}
	page := filepath.Join(dir, "page.html")
	o := command("lab report " + write("a", run("mcast")) + " " + write("b", run("ring")) + " --html " + page)
	text, err := os.ReadFile(page)
	if o.status != statusOK || err != nil || !strings.Contains(string(text), "mcast") || !strings.Contains(string(text), "ring") {
		t.Errorf("status %d, %v\n%s", o.status, err, o.stderr)
	}
	for name, bad := range map[string]string{
		"empty": "", "one line": ports, "no perf": ports + "\n" + ports, "no ports": run("mcast")[:strings.Index(run("mcast"), "\n")] + "\n{}",
	} {
		o := command("lab report " + write("bad", bad) + " --html " + filepath.Join(dir, "none.html"))
		if o.status != statusUsage {
			t.Errorf("%s: status %d\n%s", name, o.status, o.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none.html")); err == nil {
		t.Error("a page of nothing was written")
	}
}
