package lab

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/allcast/allcast/internal/settings"
)

// Enter turns this process into a rank: it enters the namespace of the rank's host and executes the command. It
// returns only on failure.
func Enter(name string, command []string) error {
	job, found, err := settings.FromLauncher(settings.Process)
	if err != nil {
		return err
	}
	_, plan, err := readPlan(name)
	switch {
	case err != nil:
		return err
	case !found || job.Rank >= plan.Graph.Hosts:
		return fmt.Errorf("no rank below %d in the environment", plan.Graph.Hosts)
	}
	return replace(plan.Namespace(plan.Nodes[job.Rank]), command, plan.rankEnv(os.Environ(), job.Rank))
}

// Exec replaces this process by a command inside a host or switch.
func (l *Lab) Exec(node string, command []string) error {
	n := l.Plan.Find(node)
	if n == nil {
		_, _, err := l.Plan.port(node, "") // the error lists the nodes
		return err
	}
	command, err := findProgram(command)
	if err != nil {
		return err
	}
	return replace(l.Plan.Namespace(n), command, l.Plan.hostEnv(os.Environ()))
}

// replace executes a command in place of this process. The command inherits the namespace of the
// calling thread.
func replace(namespace string, command, env []string) error {
	runtime.LockOSThread()
	if err := enterNamespace(namespace); err != nil {
		return err
	}
	err := syscall.Exec(command[0], command, env)
	return fmt.Errorf("%s: %w", command[0], err)
}
