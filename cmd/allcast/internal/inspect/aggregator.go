package inspect

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/units"
)

// separate divides processes into aggregators and ranks.
func separate(views []observe.View) (aggregators, ranks []observe.View) {
	for _, v := range views {
		if v.Job == observe.AggregatorJob {
			aggregators = append(aggregators, v)
		} else {
			ranks = append(ranks, v)
		}
	}
	return aggregators, ranks
}

// printAggregators prints one line per job of each aggregator.
func printAggregators(e *cli.Env, views []observe.View) error {
	if len(views) == 0 {
		return nil
	}
	t := &cli.Table{Left: true}
	t.Row("aggregator", "parent", "pid", "job", "ranks", "children", "window", "sums", "state")
	for i := range views {
		v := &views[i]
		if !v.Answers() || v.State.Aggregator == nil {
			t.Row("?", "", v.Pid, "", "", "", "", "", "does not answer: "+whySilent(v))
			continue
		}
		a := safe(v.State.Aggregator)
		for k := range a.Jobs {
			j := &a.Jobs[k]
			t.Row(a.Addr, a.Parent, v.Pid, j.Job, j.Ranks, fmt.Sprintf("%d/%d", j.Attached, j.Children), j.Window, j.Stats.Sums,
				jobState(j))
		}
		if len(a.Jobs) == 0 {
			t.Row(a.Addr, a.Parent, v.Pid, "none")
		}
	}
	return e.PrintTable(t)
}

// safe returns a state without control characters: its texts come from other machines.
func safe(s *aggregate.State) *aggregate.State {
	clean := *s
	clean.Addr, clean.Parent, clean.Jobs = units.Printable(s.Addr), units.Printable(s.Parent), slices.Clone(s.Jobs)
	for i := range clean.Jobs {
		j := &clean.Jobs[i]
		j.Job, j.Why = units.Printable(j.Job), units.Printable(j.Why)
	}
	return &clean
}

func jobState(j *aggregate.JobState) string {
	if j.Usable {
		return "ready"
	}
	return j.Why
}

func describeAggregator(say func(string, ...any), v *observe.View) {
	if v.State == nil || v.State.Aggregator == nil {
		say("aggregator, process %d: does not answer: %s\n", v.Pid, whySilent(v))
		return
	}
	s, a := v.State, safe(v.State.Aggregator)
	head := fmt.Sprintf("aggregator %s, process %d (%s) on %s, for %s", a.Addr, s.Pid, s.Program, s.Host,
		observe.Short(a.Running))
	if a.Parent != "" {
		head += ", parent " + a.Parent
	}
	say("%s", head)
	if s.Metrics != "" {
		say("  metrics at %s", s.Metrics)
	}
	say("  memory %v, reserved %v of %v; receive buffer %v; cores %d", units.Size(a.Memory), units.Size(a.Reserved),
		units.Size(a.Limit), units.Size(a.Buffer), a.Cores)
	c, d := &a.Connections, &a.Data
	say("  connections: %d attached, %d refused, %d with a wrong key, %d of another version, %d strangers; "+
		"%d children expired", c.Attached, c.Refused, c.WrongKeys, c.Versions, c.Strangers, c.Expired)
	say("  received: %d datagrams in %d messages, %d bytes; ignored: %d malformed, %d of unknown sessions, %d forged, "+
		"%d invalid; %d dropped by full queues", d.Datagrams, d.Reads, d.Bytes, d.Malformed, d.Unknown, d.Forged, d.Invalid,
		d.Dropped)
	say("  sent: %d sums in %d messages, %d bytes; %d not sent", d.Sums, d.Writes, d.SumBytes, d.Unsent)
	for i := range a.Jobs {
		j := &a.Jobs[i]
		say("  job %s, session %d, %d ranks, for %s: %d of %d children attached, %s", j.Job, j.Session, j.Ranks,
			observe.Short(j.Age), j.Attached, j.Children, jobState(j))
		say("    window %d chunks of %d bytes, memory %v; %d contributions, %d duplicates, %d stale, %d without room; "+
			"%d offered again, %d of them missing; %d sums, %d sent again; %d communicators evicted", j.Window, j.Chunk,
			units.Size(j.Memory), j.Stats.Contributions, j.Stats.Duplicates, j.Stats.Stale, j.Stats.Crowded, j.Stats.Offers,
			j.Stats.Wanted, j.Stats.Sums, j.Stats.Repeated, j.Stats.Evicted)
	}
	say("")
}
