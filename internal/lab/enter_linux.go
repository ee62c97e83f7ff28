package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/allcast/allcast/internal/settings"
)

// Enter becomes a rank: it goes into the namespace of the host that has its number,
// and runs the command in its place. It only returns if it cannot.
func Enter(name, master string, command []string) error {
	job, found, err := settings.FromLauncher(settings.Process)
	switch {
	case err != nil:
		return err
	case !found:
		return errors.New("no RANK in the environment")
	}
	host := Config{Name: name}.prefix() + "host" + strconv.Itoa(job.Rank)
	return replace(host, command, enterEnv(os.Environ(), job.Rank, os.Getenv(racksVar), master))
}

// Exec runs a command inside a host or switch, in place of this process.
func (l *Lab) Exec(node string, command []string) error {
	n := l.Plan.Find(node)
	if n == nil {
		_, _, err := l.Plan.port(node, "") // says which there are
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return configError("cannot start the program: %w", err)
	}
	return replace(l.Plan.Namespace(n), append([]string{path}, command[1:]...), l.Plan.hostEnv(os.Environ()))
}

// replace makes the command of this process. The kernel keeps the calling thread's
// namespace, and no other thread.
func replace(namespace string, command, env []string) error {
	runtime.LockOSThread()
	if err := enterNamespace(namespace); err != nil {
		return err
	}
	err := syscall.Exec(command[0], command, env)
	return fmt.Errorf("%s: %w", command[0], err)
}
