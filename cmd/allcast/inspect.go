package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/observe"
)

type inspectCmd struct {
	Target  string        `arg:"" optional:"" placeholder:"PID|ADDR" help:"A process of this machine, or HOST:PORT or unix:PATH of its metrics server."`
	Job     string        `placeholder:"JOB" help:"All local ranks of this job, in full; the beginning of its name will do, or \"all\"."`
	Events  int           `default:"20" help:"Last events to show of each process, 0 to 1024."`
	Timeout time.Duration `default:"2s" help:"How long to wait for an answer."`
}

func (inspectCmd) Help() string {
	return `What running ranks are at: their operations, what each waits for, when it last heard from the others, and its last events. Without arguments it lists the ranks of this machine (of this user), and says of each job which rank the others wait for.

A process that does not answer is stopped, or its machine is; what the others say of it is shown all the same. Nothing is changed and no operation waits.

Examples:
  allcast inspect
  allcast inspect 12345
  allcast inspect --job 6f2a --json
  allcast inspect node7:9400`
}

func (c *inspectCmd) Run(a *app) error {
	switch {
	case c.Events < 0 || c.Events > observe.Size:
		return usagef("--events %d: want 0 to %d", c.Events, observe.Size)
	case c.Timeout <= 0:
		return usagef("--timeout %v: want more than 0", c.Timeout)
	case c.Target != "" && c.Job != "":
		return usagef("a process and --job: want one of them")
	case c.Job != "":
		return c.runJob(a)
	case c.Target == "":
		return c.runList(a)
	}
	if pid, err := strconv.Atoi(c.Target); err == nil && pid > 0 {
		return c.runPid(a, pid)
	}
	if addr, ok := inspectAddr(c.Target); ok {
		return c.runAddr(a, addr)
	}
	return usagef("%q: want a process's number, HOST:PORT or unix:PATH", c.Target)
}

// inspectAddr reads where to ask.
func inspectAddr(s string) (observe.Addr, bool) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return observe.Addr{Network: "unix", Address: path}, path != ""
	}
	_, port, err := net.SplitHostPort(s)
	n, bad := strconv.ParseUint(port, 10, 16)
	return observe.Addr{Network: "tcp", Address: s}, err == nil && bad == nil && n > 0
}

// look asks all processes at once: those that do not answer all take the same time.
func (c *inspectCmd) look(sockets []observe.Socket, events int) []observe.View {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	views := make([]observe.View, len(sockets))
	var wg sync.WaitGroup
	for i, s := range sockets {
		wg.Go(func() {
			v := &views[i]
			v.Socket = s
			v.State, v.Err = observe.Ask(ctx, observe.Addr{Network: "unix", Address: s.Path}, events)
			if errors.Is(v.Err, context.DeadlineExceeded) {
				v.Err = fmt.Errorf("no answer within %v", c.Timeout)
			}
		})
	}
	wg.Wait()
	return views
}

// find lists the sockets behind which there is a process.
func find() []observe.Socket {
	return slices.DeleteFunc(observe.Find(), func(s observe.Socket) bool { return s.Gone() })
}

// runList shows a line for each rank.
func (c *inspectCmd) runList(a *app) error {
	views := c.look(find(), 0)
	if len(views) == 0 {
		a.message("no ranks of user %d on this machine; with ALLCAST_INSPECT=off they cannot be found", os.Getuid())
	}
	return a.printViews(views, false)
}

func (c *inspectCmd) runJob(a *app) error {
	sockets := slices.DeleteFunc(find(), func(s observe.Socket) bool { return c.Job != "all" && !strings.HasPrefix(s.Job, c.Job) })
	if len(sockets) == 0 {
		return fmt.Errorf("no rank of job %s on this machine", c.Job)
	}
	return a.printViews(c.look(sockets, c.Events), true)
}

// runPid shows a process; what the others of its job say of it tells more than it does.
func (c *inspectCmd) runPid(a *app, pid int) error {
	all := find()
	jobs := map[string]bool{}
	for _, s := range all {
		jobs[s.Job] = jobs[s.Job] || s.Pid == pid
	}
	all = slices.DeleteFunc(all, func(s observe.Socket) bool { return !jobs[s.Job] })
	if len(all) == 0 {
		return fmt.Errorf("process %d is not a rank that can be inspected: it has not joined a job, has left it, is another user's, or has ALLCAST_INSPECT=off", pid)
	}
	views := c.look(all, c.Events)
	mine := slices.DeleteFunc(slices.Clone(views), func(v observe.View) bool { return v.Pid != pid })
	if err := a.printFull(mine); err != nil {
		return err
	}
	if err := a.printDiagnoses(views); err != nil {
		return err
	}
	return silent(mine)
}

func (c *inspectCmd) runAddr(a *app, addr observe.Addr) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	s, err := observe.Ask(ctx, addr, c.Events)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Target, err)
	}
	views := []observe.View{{Socket: observe.Socket{Pid: s.Pid, Job: s.Job, Rank: s.Rank}, State: s}}
	if err := a.printFull(views); err != nil {
		return err
	}
	if err := a.printDiagnoses(views); err != nil {
		return err
	}
	return silent(views)
}

// silent is an error if one of the processes that were asked for did not answer.
func silent(views []observe.View) error {
	for i := range views {
		if v := &views[i]; !v.Answers() {
			return fmt.Errorf("process %d, rank %d, does not answer: %s", v.Pid, v.Rank, whySilent(v))
		}
	}
	return nil
}

func whySilent(v *observe.View) string {
	if v.Err != nil {
		return v.Err.Error()
	}
	return "its control side is stuck"
}
