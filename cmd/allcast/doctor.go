package main

import "fmt"

type doctorCmd struct{}

func (doctorCmd) Help() string {
	return `Tries what this machine can do, and says how to mend what it cannot. Status 0 if ranks on this machine can multicast to each other, 1 if not; everything else is optional.

ok: it works. warn: it works, but not as well as it could. missing: it does not.

Examples:
  allcast doctor
  allcast doctor --json`
}

// How a finding stands.
const (
	findingOK      = "ok"
	findingWarn    = "warn"
	findingMissing = "missing"
)

// finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func (doctorCmd) Run(a *app) error {
	loopback, works := loopbackFindings()
	findings := loopback
	for _, more := range []func() []finding{interfaceFindings, kernelFindings, privilegeFindings, datapathFindings, verbsFindings, environmentFindings} {
		findings = append(findings, more()...)
	}
	if err := a.printFindings(findings); err != nil {
		return err
	}
	if !works {
		a.message("multicast does not work on loopback: point-to-point algorithms do without")
		return statusError(statusFailed)
	}
	return nil
}

func (a *app) printFindings(findings []finding) error {
	if a.json {
		for _, f := range findings {
			if err := a.printJSON(f); err != nil {
				return err
			}
		}
		return nil
	}
	t := &table{left: true}
	t.row("status", "check", "found")
	for _, f := range findings {
		t.row(f.Status, f.Check, f.Detail)
		if f.Fix != "" {
			t.row("", "", "  fix: "+f.Fix)
		}
	}
	return t.print(a.stdout)
}

// onOff is a finding about something that is there or not, and why not.
func onOff(check string, on bool, works, reason, fix string) finding {
	if on {
		return finding{check, findingOK, works, ""}
	}
	return finding{check, findingWarn, fmt.Sprintf("off: %s", reason), fix}
}
