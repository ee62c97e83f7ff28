package paper

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// The rows of dpa.CompareThreads.
const (
	fullUC = iota
	fullUD
	smallUC
	smallUD
)

// threadCount is an answer of dpa.CompareThreads: threads with the benchmark's sender and with an ideal one, and
// whether the first is that of the paper.
type threadCount struct {
	benchmark, ideal int
	hit              bool
}

// robust reports whether the number is that of the paper whatever the sender does, of which two times are assumed.
func (c threadCount) robust() bool { return c.hit && c.benchmark == c.ideal }

func threadCounts(e *Env) ([]threadCount, *dpa.Table, error) {
	t, err := study(e, "threads", dpa.CompareThreads)
	if err != nil {
		return nil, nil, err
	}
	var all []threadCount
	for _, row := range t.Values {
		all = append(all, threadCount{benchmark: row[2].(int), ideal: row[4].(int), hit: row[3] == "hit"})
	}
	return all, t, nil
}

const (
	senderReason = "With a sender that never pauses, two UC threads are enough. The sender can explain the numbers. " +
		"The authors' published benchmark posts 128 chunks per " +
		"connection and waits for their acknowledgement. The pauses of two connections leave the link idle, " +
		"those of four do not. Window, blocks and posting threads are those of the benchmark. Two times are " +
		"assumed, and that the card takes turns between connections. docs/dpa.md shows how far the numbers depend " +
		"on that: with short pauses or with 64 MiB, two threads are enough."
	senderCommand = "allcast model dpa --transport uc,ud --threads 1,2,4,8,16 --window 128"
)

// figure13 is the throughput by threads, in the model and in the simulator.
func figure13(_ context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "fig13", dpa.CompareFigure13)
	if err != nil {
		return nil, err
	}
	counts, _, err := threadCounts(e)
	if err != nil {
		return nil, err
	}
	uc, ud := counts[fullUC], counts[fullUD]
	simulated, table, err := simulatedThreads(e)
	if err != nil {
		return nil, err
	}
	f := figure.Figure{
		Title: "Throughput by threads, chunks of 4 KiB, 8 MiB", X: figure.Axis{Label: "threads", Log: 2},
		Y:      figure.Axis{Label: "throughput, GiB/s"},
		Series: curves(t, "UC benchmark's sender", "UC ideal sender", "UD benchmark's sender", "UD ideal sender"),
	}
	f.Series = append(append(f.Series, simulated...), saidBy("fig13", "UC"), saidBy("fig13", "UD"))
	return &Outcome{
		Verdict: verdictIf(uc.robust() && ud.robust()),
		Ours: fmt.Sprintf("In the model, UC reaches the full throughput with %d threads and UD with %d; with an ideal "+
			"sender, with %d and %d.", uc.benchmark, ud.benchmark, uc.ideal, ud.ideal),
		Reason:  senderReason,
		Command: senderCommand,
		Tables:  []Table{acceleratorTable("threads", t), table},
		Figures: []NamedFigure{{Name: "threads", Figure: f}},
	}, nil
}

// simulatedThreads runs Broadcasts to one host with the accelerator's pace, whose sender is ideal.
func simulatedThreads(e *Env) ([]figure.Series, Table, error) {
	table := Table{
		Name: "threads-simulated", Title: "Broadcast of 8 MiB to one host in the simulator",
		Columns: []string{"datapath", "threads", "time, us", "throughput, GiB/s", "dropped chunks"},
	}
	const bytes = 8 << 20
	g, err := topology.Parse("star:2")
	if err != nil {
		return nil, table, err
	}
	var all []figure.Series
	for _, tr := range []dpa.Transport{dpa.UC, dpa.UD} {
		s := figure.Series{Name: strings.ToUpper(string(tr)) + " simulated", Style: figure.Points}
		for n := 1; n <= dpa.ThreadsPerCore; n *= 2 {
			r, err := sim.Run(sim.Config{
				Op: "broadcast", Algo: "mcast", Topology: g, Bytes: bytes, Seed: e.Seed,
				Schedule: sim.Schedule{Chunk: 4096, Subgroups: 1},
				Network:  sim.Network{Rate: 200e9, Latency: 500 * time.Nanosecond},
				Receiver: sim.Receiver{Datapath: fmt.Sprintf("dpa:%s,threads=%d", tr, n)},
			})
			if err != nil {
				return nil, table, err
			}
			if !r.Verified {
				return nil, table, fmt.Errorf("simulated broadcast with %s: not verified", r.Datapath)
			}
			throughput := bytes / (r.TimeUS * 1e-6) / (1 << 30)
			s.Data = append(s.Data, figure.Point{X: float64(n), Y: throughput})
			table.Rows = append(table.Rows, []any{string(tr), n, r.TimeUS, throughput, r.DroppedChunks})
		}
		all = append(all, s)
	}
	return all, table, nil
}

func claimC12(_ context.Context, e *Env) (*Outcome, error) {
	counts, t, err := threadCounts(e)
	if err != nil {
		return nil, err
	}
	senders, err := study(e, "senders", dpa.CompareSenders)
	if err != nil {
		return nil, err
	}
	threads := figure.Series{Name: "benchmark's sender", Style: figure.Bars}
	ideal := figure.Series{Name: "ideal sender", Style: figure.Bars}
	for i, c := range counts[:2] {
		threads.Data = append(threads.Data, figure.Point{X: float64(i), Y: float64(c.benchmark)})
		ideal.Data = append(ideal.Data, figure.Point{X: float64(i), Y: float64(c.ideal)})
	}
	return &Outcome{
		Verdict: verdictIf(counts[fullUC].robust() && counts[fullUD].robust()),
		Ours: fmt.Sprintf("In the model, UC needs %d threads and UD %d; with an ideal sender, %d and %d.",
			counts[fullUC].benchmark, counts[fullUD].benchmark, counts[fullUC].ideal, counts[fullUD].ideal),
		Reason: senderReason + fmt.Sprintf(" By Table I alone, two UC threads fill the link; if they do not, they "+
			"deliver at least %.0f %% less than that.", 100*dpa.LossOfTwo()),
		LeftOut: []string{"25 % ahead of a CPU core: needs the paper's CPU and network card"},
		Command: senderCommand,
		Tables:  []Table{acceleratorTable("thread-counts", t), acceleratorTable("senders", senders)},
		Figures: []NamedFigure{{Name: "thread-counts", Figure: figure.Figure{
			Title: "Threads for the full throughput", X: figure.Axis{Label: "datapath", Names: []string{"UC", "UD"}},
			Y:      figure.Axis{Label: "threads"},
			Series: []figure.Series{threads, ideal, saidBy("fig13", "threads for 200 Gbit/s")},
		}}},
	}, nil
}

// figure16 is the rate of small chunks by threads.
func figure16(_ context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "fig16", dpa.CompareFigure16)
	if err != nil {
		return nil, err
	}
	const threads, wanted = 128, 48.8
	uc, ud := cell(t, threads, "UC benchmark's sender"), cell(t, threads, "UD benchmark's sender")
	return &Outcome{
		Verdict: verdictIf(uc >= wanted && ud >= wanted),
		Ours: fmt.Sprintf("In the model, 128 threads process %.0f million chunks per second (UC) and %.0f million (UD).",
			uc, ud),
		Reason:  smallReason,
		Command: "allcast model dpa --transport uc,ud --threads 16,32,64,128 --chunk 64 --buffer 2M --window 128",
		Tables:  []Table{acceleratorTable("small-chunks", t)},
		Figures: []NamedFigure{{Name: "small-chunks", Figure: figure.Figure{
			Title: "Chunks of 64 bytes", X: figure.Axis{Label: "threads", Log: 2},
			Y: figure.Axis{Label: "million chunks per second", Log: 10},
			Series: append(curves(t, "UC benchmark's sender", "UC ideal sender", "UC port",
				"UD benchmark's sender", "UD ideal sender", "UD port"), saidBy("fig16", "UC and UD")),
		}}},
	}, nil
}

const smallReason = "The paper says that 128 threads are enough, not that fewer are not. Its benchmark tries powers " +
	"of two and can start at most 128 threads. 128 also follows from Figure 13: 8 cores of 16 threads at 200 Gbit/s each."

func claimC14(ctx context.Context, e *Env) (*Outcome, error) {
	out, err := figure16(ctx, e)
	if err != nil {
		return nil, err
	}
	counts, t, err := threadCounts(e)
	if err != nil {
		return nil, err
	}
	limit, err := cached(e, "accelerator port", func() ([2]int, error) {
		return [2]int{dpa.PortLimit(dpa.UC), dpa.PortLimit(dpa.UD)}, nil
	})
	if err != nil {
		return nil, err
	}
	out.Ours += fmt.Sprintf(" The smallest sufficient numbers of threads are %d and %d.",
		counts[smallUC].benchmark, counts[smallUD].benchmark)
	out.Reason += fmt.Sprintf(" The claim holds as long as an access to memory blocks the others of its core for at "+
		"most %d cycles (UC) or %d (UD).", limit[0], limit[1])
	out.Tables = []Table{acceleratorTable("thread-counts", t)}
	return out, nil
}
