package observe

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Socket is the inspection socket of a process on this machine. Its fields come from its file
// name, so they are known even if the process does not answer.
type Socket struct {
	Path string
	Pid  int
	Job  string
	Rank int
}

// ErrUnsafe marks a directory in which other users could create sockets.
var ErrUnsafe = errors.New("not a directory of ours alone")

const socketSuffix = ".sock"

// Dirs lists the possible directories of this user's sockets. A process and its inspector may
// have different environments.
func Dirs() (dirs []string) {
	uid := strconv.Itoa(os.Getuid())
	name, session := "allcast-"+uid, os.Getenv("XDG_RUNTIME_DIR")
	if session == "" {
		session = "/run/user/" + uid // the usual place
	}
	for _, base := range []string{session, os.TempDir()} {
		if dir := filepath.Join(base, name); filepath.IsAbs(base) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// ownDir creates the directory for this process's socket: in the session's directory, or
// otherwise a temporary one.
func ownDir() (string, error) {
	dirs := Dirs()
	if os.Getenv("XDG_RUNTIME_DIR") == "" {
		dirs = dirs[len(dirs)-1:]
	}
	var first error
	for _, dir := range dirs {
		err := os.Mkdir(dir, 0o700)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = checkOwn(dir)
		}
		if err == nil {
			return dir, nil
		}
		if first == nil || errors.Is(err, ErrUnsafe) {
			first = err
		}
	}
	return "", first
}

// checkOwn rejects a directory that other users own or can write to.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !owned(info) {
		return fmt.Errorf("%s: %w", dir, ErrUnsafe)
	}
	return nil
}

// ListenLocal opens this process's socket, and removes the sockets of dead processes.
func ListenLocal(job string, rank int) (net.Listener, error) {
	dir, err := ownDir()
	if err != nil {
		return nil, err
	}
	for _, s := range socketsIn(dir) {
		if s.Gone() {
			_ = os.Remove(s.Path)
		}
	}
	return listenUnix(filepath.Join(dir, fmt.Sprintf("%d-%s-%d%s", os.Getpid(), job, rank, socketSuffix)))
}

// listenUnix listens at a path. It replaces the socket of a dead process.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if info, e := os.Lstat(path); e != nil || info.Mode().Type() != fs.ModeSocket || !refuses(path) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// refuses reports whether no process listens at a socket. A stopped process does listen.
func refuses(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Find lists the sockets of this user's processes, in order of job and rank.
func Find() (all []Socket) {
	for _, dir := range Dirs() {
		if checkOwn(dir) != nil {
			continue // missing, or another user's
		}
		all = append(all, socketsIn(dir)...)
	}
	slices.SortFunc(all, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Pid, b.Pid))
	})
	return all
}

func socketsIn(dir string) (all []Socket) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if s, ok := parseSocket(e.Name()); ok {
			s.Path = filepath.Join(dir, e.Name())
			all = append(all, s)
		}
	}
	return all
}

// parseSocket parses PID-JOB-RANK.sock.
func parseSocket(name string) (s Socket, ok bool) {
	name, ok = strings.CutSuffix(name, socketSuffix)
	f := strings.Split(name, "-")
	if !ok || len(f) != 3 {
		return s, false
	}
	var errPid, errRank error
	s.Pid, errPid = strconv.Atoi(f[0])
	s.Rank, errRank = strconv.Atoi(f[2])
	s.Job = f[1]
	return s, errPid == nil && errRank == nil && s.Pid > 0 && s.Rank >= 0
}

// Gone reports whether a socket's process has ended and left the socket behind.
func (s *Socket) Gone() bool { return !alive(s.Pid) && refuses(s.Path) }
