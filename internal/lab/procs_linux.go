package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// findProcess identifies a running process uniquely. The start time is the 22nd field of its stat; the
// fields count after the program's name, which may contain any character.
func findProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	// A zombie has ended, unless other threads of it still hold its files. The 20th field is their number.
	if len(f) < 20 || f[0] == "Z" && (f[17] == "0" || f[17] == "1") {
		return process{}, os.ErrNotExist
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return process{pid, start}, err
}

func (p process) alive() bool {
	now, err := findProcess(p.PID)
	return err == nil && now == p
}

// end sends a signal and waits until the process has ended.
func (p process) end(sig unix.Signal) error {
	for limit := time.Now().Add(patience); p.alive(); time.Sleep(10 * time.Millisecond) {
		if sig != 0 {
			if err := unix.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("process %d: %w", p.PID, err)
			}
			sig = 0
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process %d does not end", p.PID)
		}
	}
	return nil
}

// processesIn lists the processes inside a lab's namespaces. All of them belong to the lab.
func processesIn(names []string) (pids []int, err error) {
	type id struct{ dev, ino uint64 }
	ours := make(map[id]bool, len(names))
	var st unix.Stat_t
	for _, n := range names {
		if unix.Stat(namespacePath(n), &st) == nil {
			ours[id{st.Dev, st.Ino}] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The process may have ended in the meantime.
		if unix.Stat("/proc/"+e.Name()+"/ns/net", &st) == nil && ours[id{st.Dev, st.Ino}] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// killProcesses kills all processes inside a lab's namespaces.
func killProcesses(names []string) error {
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids, err := processesIn(names)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("processes %v inside the lab do not end", pids)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("process %d inside the lab: %w", pid, err)
			}
		}
	}
}
