package engine

import "golang.org/x/sys/unix"

const hugePage = 2 << 20

// mapMemory returns memory whose pages are there, huge ones if it is worth it.
func mapMemory(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if n >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // it is only advice
	}
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // before Linux 5.14, pages come as they are used
	return mem, nil
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
