package inspect

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/observe"
)

// silentProcess is the JSON of a process that does not answer.
type silentProcess struct {
	Job     string `json:"job"`
	Rank    int    `json:"rank"`
	Pid     int    `json:"pid"`
	Answers bool   `json:"answers"`
	Error   string `json:"error"`
}

// printDiagnoses prints one line per job.
func printDiagnoses(e *cli.Env, views []observe.View) error {
	for len(views) > 0 {
		if views[0].Job == observe.AggregatorJob {
			views = views[1:]
			continue
		}
		n := 1
		for n < len(views) && views[n].Job == views[0].Job {
			n++
		}
		d := observe.Diagnose(views[0].Job, views[:n])
		views = views[n:]
		if err := e.PrintResult(d, "job "+d.Job+": "+d.Text+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func printList(e *cli.Env, views []observe.View) error {
	aggregators, views := separate(views)
	if err := printAggregators(e, aggregators); err != nil || len(views) == 0 {
		return err
	}
	t := &cli.Table{Left: true}
	t.Row("job", "rank", "pid", "program", "comm", "op", "algo", "phase", "seq", "for", "waits for")
	for i := range views {
		v := &views[i]
		if !v.Answers() {
			t.Row(v.Job, v.Rank, v.Pid, "", "", "does not answer: "+whySilent(v))
			continue
		}
		rank := fmt.Sprintf("%d/%d", v.Rank, v.State.Size)
		idle := true
		for _, c := range v.State.Comms {
			for _, o := range c.Ops {
				t.Row(v.Job, rank, v.Pid, v.State.Program, c.Name, o.Op, o.Algo, o.Phase, o.Seq, observe.Short(o.For),
					waitsFor(v.Rank, &o))
				idle = false
			}
		}
		if idle {
			t.Row(v.Job, rank, v.Pid, v.State.Program, "", "none")
		}
	}
	return e.PrintTable(t)
}

func waitsFor(rank int, o *observe.Op) string {
	if o.WaitsOn == rank {
		return "nobody"
	}
	return fmt.Sprintf("rank %d", o.WaitsOn)
}

// printFull prints everything that is known about the processes.
func printFull(e *cli.Env, views []observe.View) error {
	for i := range views {
		v := &views[i]
		var object any = v.State
		if v.State == nil {
			object = silentProcess{Job: v.Job, Rank: v.Rank, Pid: v.Pid, Error: whySilent(v)}
		}
		if err := e.PrintResult(object, describe(v)); err != nil {
			return err
		}
	}
	return nil
}

// describe describes a process for people.
func describe(v *observe.View) string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	if v.Job == observe.AggregatorJob {
		describeAggregator(say, v)
		return b.String()
	}
	if v.State == nil {
		say("rank %d, process %d, job %s: does not answer: %s\n", v.Rank, v.Pid, v.Job, whySilent(v))
		return b.String()
	}
	s := v.State
	say("rank %d of %d, process %d (%s) on %s, job %s, joined %s ago",
		s.Rank, s.Size, s.Pid, s.Program, s.Host, s.Job, observe.Short(s.Joined))
	if s.Multicast != "" {
		say("  no multicast: %s", s.Multicast)
	}
	if s.Metrics != "" {
		say("  metrics at %s", s.Metrics)
	}
	if !s.Answers {
		say("  its control side is stuck: nothing more is known\n")
		return b.String()
	}
	for i := range s.Comms {
		describeComm(say, s.Rank, &s.Comms[i])
	}
	for _, p := range s.Peers {
		if p.Lost {
			say("  rank %d is lost", p.Rank)
		} else {
			say("  heard from rank %d %s ago", p.Rank, observe.Short(p.Silent))
		}
	}
	if len(s.Events) > 0 {
		say("  last %d of %d events:", len(s.Events), s.Recorded)
	}
	for i := range s.Events {
		say("    %s", describeEvent(&s.Events[i]))
	}
	say("")
	return b.String()
}

func describeComm(say func(string, ...any), rank int, c *observe.Comm) {
	head := fmt.Sprintf("  communicator %s: rank %d of %d, %d calls", c.Name, c.Rank, c.Size, c.Calls)
	if c.Broken != "" {
		head += ", broken: " + c.Broken
		if c.Culprit != nil && *c.Culprit >= 0 {
			head += fmt.Sprintf(": rank %d", *c.Culprit)
		}
	}
	say("%s", head)
	for i := range c.Ops {
		o := &c.Ops[i]
		say("    %s %d by %s, %d bytes, in the %s phase, for %s: waits for %s; missing: %s",
			o.Op, o.Seq, o.Algo, o.Bytes, o.Phase, observe.Short(o.For), waitsFor(rank, o), o.Missing)
	}
}

func describeEvent(e *observe.Record) string {
	text := fmt.Sprintf("%10s ago  %s", observe.Short(e.Ago), e.What)
	if e.How != "" {
		text += " " + e.How
	}
	if e.Text != "" {
		text += " (" + e.Text + ")"
	}
	if e.Peer != nil {
		text += fmt.Sprintf(" rank %d", *e.Peer)
	}
	text += fmt.Sprintf("  comm %d seq %d", e.Comm, e.Seq)
	if e.N != 0 {
		text += fmt.Sprintf(" n %d", e.N)
	}
	if e.Times > 1 {
		text += fmt.Sprintf(" (%d times)", e.Times)
	}
	return text
}
