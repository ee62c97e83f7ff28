package deaths

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/inherit"
)

func init() { roles["fork"] = forkRole }

// forkVar names the rank that forks.
const forkVar = "ALLCAST_TEST_FORK"

// forkRole gathers until a call fails, like e2e.Gather. After some calls, one rank forks a child that lives on.
func forkRole() int {
	table := make([]inherit.Entry, 256)
	inherit.Enable(table)
	ctx := context.Background()
	c, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		e2e.Say("join:", err)
		return 1
	}
	for i := uint64(0); ; i++ {
		err := calltest.Allgather(ctx, c, i, 200_000, os.Getenv(e2e.AlgoVar))
		var failed *allcast.RankError
		switch {
		case errors.As(err, &failed):
			e2e.Say("failed", failed.Rank)
			_ = c.Close()
			return 0
		case err != nil:
			e2e.Say("unexpected:", err)
			return 1
		}
		if i == 3 && os.Getenv(forkVar) == os.Getenv("RANK") {
			pid, errno := forkChild(table)
			if errno != 0 {
				e2e.Say("fork:", errno)
				return 1
			}
			e2e.Say("forked", pid)
		}
	}
}

// Memory of the child. It must not use its stack for more than a few words.
var (
	childStat  syscall.Stat_t
	childInput [1]byte
	allSignals = [2]uint64{^uint64(0), ^uint64(0)}
	oldSignals [2]uint64
)

// forkChild forks a child without exec. The child closes recorded sockets, and then waits for the end of its
// standard input. The runtime of Go does not work in the child, so the child makes system calls and nothing else.
//
//go:norace
//go:nosplit
func forkChild(table []inherit.Entry) (pid uintptr, errno syscall.Errno) {
	const setMask, maskSize = 2, 8 // SIG_SETMASK
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&allSignals)),
		uintptr(unsafe.Pointer(&oldSignals)), maskSize, 0, 0)
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&oldSignals)),
			0, maskSize, 0, 0)
		return pid, errno
	}
	for i := range table {
		e := &table[i]
		_, _, errno := syscall.RawSyscall(syscall.SYS_FSTAT, uintptr(e.FD), uintptr(unsafe.Pointer(&childStat)), 0)
		if errno == 0 && e.Inode != 0 && childStat.Ino == e.Inode && childStat.Dev == e.Device {
			_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(e.FD), 0, 0)
		}
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, 1, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, 2, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&childInput)), 1)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// A rank is killed while a child that it has forked lives on. The other ranks learn of its death at once, not after
// the timeout, which is longer than the test.
func TestKilledParent(t *testing.T) {
	const size = 3
	// The children become children of this process, which waits for them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, algo := range []string{"mcast", "ring"} {
		for victim := range size {
			t.Run(fmt.Sprint(algo, " ", victim), func(t *testing.T) {
				all := e2e.Start(t, size, "fork", e2e.AlgoVar+"="+algo, "ALLCAST_TIMEOUT=1h", fmt.Sprint(forkVar, "=", victim))
				var child int
				if !all[victim].Until("forked") {
					t.Fatalf("rank %d said %q", victim, all[victim].Last())
				}
				if _, err := fmt.Sscanf(all[victim].Last(), "forked %d", &child); err != nil {
					t.Fatal(err)
				}
				if err := all[victim].Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for rank, p := range all {
					if want := fmt.Sprint("failed ", victim); rank != victim && !p.Until(want) {
						t.Errorf("rank %d said %q, want %q", rank, p.Last(), want)
					}
				}
				if err := syscall.Kill(child, 0); err != nil {
					t.Errorf("the child has not lived on: %v", err)
				}
				all[victim].EndInput()
				all[victim].Kill()
				if _, err := syscall.Wait4(child, nil, 0, nil); err != nil {
					t.Errorf("the child: %v", err)
				}
			})
		}
	}
}
