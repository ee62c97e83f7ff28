package datapath

import "golang.org/x/sys/unix"

const hugePage = 2 << 20

// mapMemory returns memory with its pages in place, huge pages if n is large.
func mapMemory(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if n >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // best effort
	}
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // best effort: Linux before 5.14 faults pages in on use
	return mem, nil
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
