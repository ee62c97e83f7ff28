//go:build linux

package main

import (
	"bytes"
	"strconv"
	"testing"
)

// The kernel finds entries by counting: every header and every content is padded to four
// bytes, and lengths are hexadecimal.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := &archive{w: &b}
	a.dir("etc")
	a.text("etc/x", "content")
	a.end()
	if a.err != nil {
		t.Fatal(a.err)
	}
	var names []string
	for rest := b.Bytes(); len(rest) > 0; {
		if !bytes.HasPrefix(rest, []byte("070701")) {
			t.Fatalf("no entry at %d", b.Len()-len(rest))
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(string(rest[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		size, name := field(6), field(11)
		names = append(names, string(rest[110:110+name-1]))
		at := (110 + name + 3) &^ 3
		if got := string(rest[at : at+size]); size > 0 && got != "content" {
			t.Errorf("%s holds %q", names[len(names)-1], got)
		}
		rest = rest[at+(size+3)&^3:]
	}
	if len(names) != 3 || names[1] != "etc/x" || names[2] != "TRAILER!!!" {
		t.Errorf("entries %q", names)
	}
}
