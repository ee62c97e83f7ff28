package demo

import (
	"fmt"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// report prints the results on rank 0.
func report(e *cli.Env, rows []row, wrong bool) error {
	summary := gain(rows)
	switch {
	case wrong:
		e.Message("some of the data was wrong")
	case e.JSON:
		e.Message("%s", summary)
	}
	if e.JSON {
		return nil
	}
	if err := e.PrintTable(table(rows)); err != nil {
		return err
	}
	return e.Print(summary + "\n")
}

func table(rows []row) *cli.Table {
	t := &cli.Table{}
	t.Note("%d processes on this machine, over loopback. bytes: what one rank sends, 1M here.", rows[0].Ranks)
	t.Note("time: from start to end of the slowest rank, median of %d. "+
		"sent: MiB that the busiest rank handed to the network.", iters)
	t.Note("Loopback copies each datagram once per receiver: this machine does the work that a switch would do.")
	t.Row("op", "algo", "time_ms", "sent_MiB", "vs_mcast", "repaired_bytes", "verified")
	var mcast *bench.Result
	for _, r := range rows {
		if r.Algo == "mcast" {
			mcast = r.Result
		}
		t.Row(r.Op, r.Algo, r.Time.P50/1e3, mebibytes(r.SentBytes),
			fmt.Sprintf("%.2fx", ratio(r.SentBytes, mcast.SentBytes)), r.RepairedBytes, cli.YesNo(r.Verified))
	}
	return t
}

// gain compares Allgather by ring with multicast in this run.
func gain(rows []row) string {
	var mcast, ring *bench.Result
	for _, r := range rows {
		switch r.Op + " " + r.Algo {
		case "allgather mcast":
			mcast = r.Result
		case "allgather ring":
			ring = r.Result
		}
	}
	speed := fmt.Sprintf("and took %.2f times as long", ring.Time.P50/mcast.Time.P50)
	if ring.Time.P50 < mcast.Time.P50 {
		speed = fmt.Sprintf("but was faster here, in %.2f of the time", ring.Time.P50/mcast.Time.P50)
	}
	return fmt.Sprintf("Allgather at %d ranks: with ring the busiest rank injected %.2f MiB, with multicast %.2f MiB: "+
		"ring injects %.2f times as much, %s.", mcast.Ranks,
		mebibytes(ring.SentBytes), mebibytes(mcast.SentBytes), ratio(ring.SentBytes, mcast.SentBytes), speed)
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(1, b)) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
