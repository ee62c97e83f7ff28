// Package inspect is "allcast inspect": it shows what running ranks are doing.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/observe"
)

// Command is "allcast inspect".
type Command struct {
	Target  string        `arg:"" optional:"" placeholder:"PID|ADDR"`
	Job     string        `placeholder:"JOB"`
	Events  *int          `placeholder:"N" help:"Number of last events to show per process, 0 to 1024 (default 20)."`
	Timeout time.Duration `default:"2s" help:"How long to wait for an answer."`
}

// FlagHelp implements cli.FlagHelp.
func (Command) FlagHelp() map[string]string {
	return map[string]string{
		"target": "A process on this machine, or HOST:PORT or unix:PATH of its metrics server.",
		"job":    "All local ranks of this job, in full: a prefix of its name, or \"all\".",
	}
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Shows what running ranks are doing: their operations, what each one waits for, when it last heard from the
other ranks, and its last events. Without arguments it lists this user's ranks on this machine, and names for
each job the rank that the others wait for. It also shows aggregators and their jobs.

A process that does not answer, or its machine, has stopped; the output then shows what the other ranks know
about it. Inspecting changes nothing and delays no operation.

Examples:
  allcast inspect
  allcast inspect 12345
  allcast inspect --job 6f2a --json
  allcast inspect node7:9400`
}

// Arguments implements cli.Arguments.
func (Command) Arguments() (takes, needs string) { return "one process, and flags", "" }

// Run shows one process, the ranks of a job, or a list of all ranks.
func (c *Command) Run(e *cli.Env) error {
	switch {
	case c.events() < 0 || c.events() > observe.Size:
		return cli.Usagef("--events %d: want 0 to %d", c.events(), observe.Size)
	case c.Events != nil && c.Target == "" && c.Job == "":
		return cli.Usagef("--events has no effect on the list of ranks: name a process, or a job with --job")
	case c.Timeout <= 0:
		return cli.Usagef("--timeout %v: want more than 0", c.Timeout)
	case c.Target != "" && c.Job != "":
		return cli.Usagef("a process and --job: want one of them")
	case c.Job != "":
		return c.runJob(e)
	case c.Target == "":
		return c.runList(e)
	}
	if pid, err := strconv.Atoi(c.Target); err == nil && pid > 0 {
		return c.runPid(e, pid)
	}
	addr, err := observe.ParseAddr(c.Target, 0, 0)
	if err == nil && (addr.Network == "unix" || !strings.HasSuffix(addr.Address, ":0")) {
		return c.runAddr(e, addr)
	}
	return cli.Usagef("%q: want a process's number, HOST:PORT or unix:PATH", c.Target)
}

// events is the number of events to show per process.
func (c *Command) events() int {
	if c.Events == nil {
		return 20
	}
	return *c.Events
}

// look asks all processes in parallel, so that the timeout passes only once.
func (c *Command) look(sockets []observe.Socket, events int) []observe.View {
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

// find lists the sockets of live processes.
func find() []observe.Socket {
	return slices.DeleteFunc(observe.Find(), func(s observe.Socket) bool { return s.Gone() })
}

// runList shows one line per rank.
func (c *Command) runList(e *cli.Env) error {
	views := c.look(find(), 0)
	if len(views) == 0 {
		e.Message("no ranks of user %d on this machine; ranks with ALLCAST_INSPECT=off cannot be found", os.Getuid())
	}
	if e.JSON {
		return show(e, views, views)
	}
	if err := printList(e, views); err != nil {
		return err
	}
	return printDiagnoses(e, views)
}

func (c *Command) runJob(e *cli.Env) error {
	sockets := slices.DeleteFunc(find(), func(s observe.Socket) bool {
		return c.Job != "all" && !strings.HasPrefix(s.Job, c.Job)
	})
	if len(sockets) == 0 {
		return fmt.Errorf("no rank of job %s on this machine", c.Job)
	}
	views := c.look(sockets, c.events())
	return show(e, views, views)
}

// runPid shows a process, and what the other ranks of its job know about it.
func (c *Command) runPid(e *cli.Env, pid int) error {
	all := find()
	jobs := map[string]bool{}
	for _, s := range all {
		jobs[s.Job] = jobs[s.Job] || s.Pid == pid
	}
	all = slices.DeleteFunc(all, func(s observe.Socket) bool { return !jobs[s.Job] })
	if len(all) == 0 {
		return fmt.Errorf("process %d is not a rank that can be inspected: it has not joined a job, has left it, "+
			"belongs to another user, or has ALLCAST_INSPECT=off", pid)
	}
	views := c.look(all, c.events())
	mine := slices.DeleteFunc(slices.Clone(views), func(v observe.View) bool { return v.Pid != pid })
	return cmp.Or(show(e, mine, views), silent(mine))
}

func (c *Command) runAddr(e *cli.Env, addr observe.Addr) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	s, err := observe.Ask(ctx, addr, c.events())
	if err != nil {
		return fmt.Errorf("%s: %w", c.Target, err)
	}
	views := []observe.View{{Socket: observe.Socket{Pid: s.Pid, Job: s.Job, Rank: s.Rank}, State: s}}
	return cmp.Or(show(e, views, views), silent(views))
}

// show prints the requested processes in full, and a diagnosis of their jobs from all processes.
func show(e *cli.Env, requested, all []observe.View) error {
	if err := printFull(e, requested); err != nil {
		return err
	}
	return printDiagnoses(e, all)
}

// silent returns an error if one of the requested processes did not answer.
func silent(requested []observe.View) error {
	for i := range requested {
		if v := &requested[i]; !v.Answers() {
			if v.Job == observe.AggregatorJob {
				return fmt.Errorf("process %d, an aggregator, does not answer: %s", v.Pid, whySilent(v))
			}
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
