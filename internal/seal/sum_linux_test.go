package seal

import (
	"hash/crc32"
	"testing"

	"golang.org/x/sys/unix"
)

// No implementation reads outside of its text: pages without access surround the text.
func TestSumStaysInside(t *testing.T) {
	page := unix.Getpagesize()
	size := 4 * page
	mem, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for _, guard := range [][]byte{mem[:page], mem[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	text := mem[page : page+size : page+size]
	copy(text, random(size))
	for name, sum := range sums() {
		for n := range size + 1 {
			if n > 2048 && n < size-600 {
				continue
			}
			for _, b := range [][]byte{text[:n], text[size-n:]} {
				if got, want := sum(1, b), crc32.Update(1, castagnoli, b); got != want {
					t.Fatalf("%s of %d bytes is %#x, not %#x", name, n, got, want)
				}
			}
		}
	}
}
