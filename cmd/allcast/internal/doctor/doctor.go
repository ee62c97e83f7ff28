// Package doctor is "allcast doctor": it tries what this machine and network can do.
package doctor

import "github.com/allcast/allcast/cmd/allcast/internal/cli"

// Command is "allcast doctor".
type Command struct{}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Tries what this machine can do and says how to fix what is missing. The exit status is 0 if ranks on this
machine can multicast to each other and 1 if not; everything else is optional.

ok: works. warn: works, but not as well as it could. missing: does not work.

Examples:
  allcast doctor
  allcast doctor --json`
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

// Run does all checks.
func (Command) Run(e *cli.Env) error {
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

// onOff is a finding about an optional feature.
func onOff(check string, on bool, works, reason, fix string) finding {
	if on {
		return ok(check, works)
	}
	return warn(check, "off: "+reason, fix)
}
