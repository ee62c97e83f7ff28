// Package inherit records the sockets of this process, so that a forked child can close them.
//
// A child that was forked without exec inherits all descriptors. If this process is then killed, its connections stay
// open as long as the child lives, and other ranks take it for alive. The child cannot run Go: the runtime has
// lost its threads. The record is therefore a table that C reads. Its code runs in the child (pthread_atfork) and
// closes each descriptor that is still the recorded socket:
//
//	for (i = 0; i < n; i++) {
//		struct stat s;
//		if (table[i].inode != 0 && fstat(table[i].fd, &s) == 0 && S_ISSOCK(s.st_mode) &&
//		    s.st_ino == table[i].inode && s.st_dev == table[i].device)
//			close(table[i].fd);
//	}
//
// The comparison makes it safe to leave entries behind. An entry whose socket was closed matches nothing, because no
// other socket gets the same inode, and it is replaced when the table is full.
//
// A child inherits sockets that a fork catches between their creation and their record. It also inherits
// descriptors of epoll, events and eBPF, which share one inode. They keep no connection open.
package inherit

// An Entry is one recorded socket. C has the same struct with three 64-bit integers.
type Entry struct {
	Inode  uint64 // 0: the entry is free; written last
	Device uint64
	FD     int64
}
