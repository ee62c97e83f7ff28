package send

import (
	"fmt"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/transfer"
)

const schema = 1

// progressInterval is the time between progress events of --json.
const progressInterval = time.Second

// show shows events to people or programs.
type show struct {
	e    *cli.Env
	line *cli.ProgressLine
	what string

	started time.Time
	resumed int64     // bytes at the start
	next    time.Time // of the next progress event
}

func newShow(e *cli.Env, what string) *show {
	return &show{e: e, line: cli.NewProgressLine(e, nil), what: what}
}

// event shows one event. Package transfer calls it from one goroutine at a time.
func (s *show) event(v transfer.Event) {
	now := time.Now()
	if v.Event == transfer.EventStart {
		s.started, s.resumed = now, v.Resumed
		s.line = cli.NewProgressLine(s.e, nil)
	}
	if v.Event == transfer.EventProgress {
		s.progress(now, v)
		return
	}
	if s.e.JSON {
		_ = s.e.PrintJSON(v) // a failed write shows in the last object
		return
	}
	who := units.Printable(v.Receiver)
	if v.Address != "" {
		who = fmt.Sprintf("%s (%s)", who, v.Address)
	}
	var text string
	switch v.Event {
	case transfer.EventListening:
		text = fmt.Sprintf("listening on %s: %d files, %s", v.Address, v.Files, size(v.Total))
	case transfer.EventReceiver:
		text = who + " is ready"
		if v.Resumed > 0 {
			text += fmt.Sprintf(", and has %s already", size(v.Resumed))
		}
	case transfer.EventLagging:
		text = who + " is behind by more than --max-lag, and catches up later"
	case transfer.EventLost:
		if text = "lost " + who + ": " + v.Reason; v.Receiver == "" {
			text = v.Reason
		}
	case transfer.EventComplete:
		if text = who + " is complete"; v.Receiver == "" {
			return
		}
	case transfer.EventGroup:
		if v.Algo == "mcast" {
			return
		}
		text = "no multicast: the data goes from receiver to receiver"
		if v.Reason != "" {
			text += " (" + v.Reason + ")"
		}
	default:
		return
	}
	s.line.Clear()
	s.e.Message("%s", text)
}

func (s *show) progress(now time.Time, v transfer.Event) {
	if s.e.JSON {
		if !now.Before(s.next) {
			s.next = now.Add(progressInterval)
			_ = s.e.PrintJSON(v)
		}
		return
	}
	share := 0.0
	if v.Total > 0 {
		share = float64(v.Bytes) / float64(v.Total)
	}
	detail := size(v.Bytes)
	if took := now.Sub(s.started).Seconds(); took > 0 && !s.started.IsZero() {
		detail += fmt.Sprintf(", %s/s", size(int64(float64(v.Bytes-s.resumed)/took)))
	}
	s.line.Update(now, s.what, share, detail)
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// summary prints the outcome of every receiver.
func (s *show) summary(sum *transfer.Summary, err error) error {
	if s.e.JSON {
		return s.e.PrintJSON(struct {
			Event string `json:"event"`
			*transfer.Summary
			Error  string `json:"error,omitempty"`
			Schema int    `json:"schema"`
		}{"summary", sum, text(err), schema})
	}
	t := &cli.Table{Left: true}
	t.Note("%d files, %s, in %.2f s", sum.Files, size(sum.Bytes), sum.Seconds)
	t.Row("receiver", "address", "complete", "received", "resumed", "seconds", "error")
	for _, r := range sum.Receivers {
		t.Row(r.Name, r.Address, cli.YesNo(r.Complete), size(r.Bytes), size(r.Resumed),
			fmt.Sprintf("%.2f", r.Seconds), r.Error)
	}
	return s.e.PrintTable(t)
}

// result prints the outcome of a receiver. Standard output may be taken by the data.
func (s *show) result(r *transfer.Result, taken bool, err error) error {
	if s.e.JSON {
		return s.e.PrintJSON(struct {
			Event    string `json:"event"`
			Complete bool   `json:"complete"`
			*transfer.Result
			Error  string `json:"error,omitempty"`
			Schema int    `json:"schema"`
		}{"result", err == nil, r, text(err), schema})
	}
	if err != nil {
		return nil //nolint:nilerr // the caller reports it
	}
	line := fmt.Sprintf("%d files, %s, in %.2f s", r.Files, size(r.Bytes), r.Seconds)
	if r.Resumed > 0 {
		line += fmt.Sprintf("; %s were here before", size(r.Resumed))
	}
	if taken {
		s.e.Message("%s", line)
		return nil
	}
	return s.e.Print(line + "\n")
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
