// Package doctor is "allcast doctor": it tries what this machine and network can do.
package doctor

import (
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// Command is "allcast doctor".
type Command struct {
	With []string    `placeholder:"HOST" help:"Check the network between this machine and others, through ssh."`
	More []string    `arg:"" optional:"" name:"host" placeholder:"HOST" help:"More machines for --with."`
	Long bool        `help:"Also check whether multicast still arrives after 5 minutes."`
	Rate *units.Rate `placeholder:"RATE" help:"Rate at which each machine sends to measure loss (default 100mbit)."`
	SSH  *string     `name:"ssh" placeholder:"COMMAND" help:"The ssh to use, with options (default ssh)."`

	LongFor time.Duration `hidden:"" default:"5m20s"` // the last query of a querier that has left counts for 260 s
	Names   []string      `hidden:""`                 // of the machines, by rank
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Tries what this machine can do and says how to fix what is missing. The exit status is 0 if ranks on this
machine can multicast to each other and 1 if not; everything else is optional.

With --with, or started as a job by mpirun, srun or another launcher, it checks the network between machines
instead: whether multicast arrives in all directions, up to which size, and how much of it at a rate; the path MTU,
firewalls, IGMP versions and queriers. With --long it also keeps listening for 5 minutes, because switches with IGMP
snooping but without a querier stop forwarding after about 260 s. The exit status is then 0 if Allcast can multicast
between all machines. --with needs ssh without a password, and this program on all machines.

ok: works. warn: works, but not as well as it could. missing: does not work.

Examples:
  allcast doctor
  allcast doctor --json
  allcast doctor --with node2,node3
  mpirun -n 8 allcast doctor --long`
}

// Arguments implements cli.Arguments.
func (Command) Arguments() (takes, needs string) {
	return "flags only, or machines after --with", "machines after --with"
}

// The statuses of findings.
const (
	statusOK      = "ok"
	statusWarn    = "warn"
	statusMissing = "missing"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func ok(check, detail string) finding { return finding{check, statusOK, detail, ""} }

func warn(check, detail, fix string) finding { return finding{check, statusWarn, detail, fix} }

func missing(check, detail, fix string) finding { return finding{check, statusMissing, detail, fix} }

// Run checks the network between machines if there are several, or else this machine.
func (c *Command) Run(e *cli.Env) error {
	job, found, err := settings.FromLauncher(settings.Process)
	among := err == nil && found && job.Size > 1
	switch {
	case len(c.With) > 0 && among:
		return cli.Usagef("--with has no effect in a job: the ranks' machines are checked")
	case len(c.With) == 0 && len(c.More) > 0:
		return cli.Usagef("unexpected argument %s; allcast doctor takes flags only, or machines after --with", c.More[0])
	case len(c.With) == 0 && c.SSH != nil:
		return cli.Usagef("--ssh has no effect without --with")
	case len(c.With) == 0 && !among && (c.Long || c.Rate != nil):
		return cli.Usagef("--long and --rate have no effect on one machine: add --with HOST, or start a job")
	case len(c.With) > 0:
		return c.runWith(e)
	case among:
		return c.runRank(e)
	}
	return runLocal(e)
}

// runLocal does all checks of this machine.
func runLocal(e *cli.Env) error {
	loopback, works := loopbackFindings()
	findings := loopback
	for _, more := range []func() []finding{
		interfaceFindings, kernelFindings, privilegeFindings, datapathFindings, verbsFindings, environmentFindings,
	} {
		findings = append(findings, more()...)
	}
	if err := printFindings(e, findings); err != nil {
		return err
	}
	if !works {
		e.Message("multicast does not work on loopback; point-to-point algorithms do not need it")
		return cli.StatusError(cli.StatusFailed)
	}
	return nil
}

func printFindings(e *cli.Env, findings []finding) error {
	if e.JSON {
		for _, f := range findings {
			if err := e.PrintJSON(f); err != nil {
				return err
			}
		}
		return nil
	}
	t := &cli.Table{Left: true}
	t.Row("status", "check", "found")
	for _, f := range findings {
		t.Row(f.Status, f.Check, f.Detail)
		if f.Fix != "" {
			t.Row("", "", "  fix: "+f.Fix)
		}
	}
	return e.PrintTable(t)
}

// hosts lists the machines of --with.
func (c *Command) hosts() (names []string) {
	for _, list := range append(c.With, c.More...) {
		names = append(names, strings.Split(list, ",")...)
	}
	return names
}

// onOff is a finding about an optional feature.
func onOff(check string, on bool, works, reason, fix string) finding {
	if on {
		return ok(check, works)
	}
	return warn(check, "off: "+reason, fix)
}
