package main

import (
	"fmt"
)

// demoReport tells people what rank 0 has gathered.
func (a *app) demoReport(rows []demoRow, wrong bool) error {
	gain := demoGain(rows)
	switch {
	case wrong:
		a.message("some of the data was wrong")
	case a.json:
		a.message("%s", gain)
	}
	if a.json {
		return nil
	}
	if err := demoTable(rows).print(a.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.stdout, gain)
	return err
}

func demoTable(rows []demoRow) *table {
	t := &table{}
	t.note("%d processes on this machine, over loopback. bytes: what one rank sends, 1M here.", rows[0].Ranks)
	t.note("time: from the start to the end of the slowest rank, median of %d. sent: MiB that the busiest rank handed to the network.", demoIters)
	t.note("Loopback copies a datagram once a receiver, which costs this machine the time that a switch would save it.")
	t.row("op", "algo", "time_ms", "sent_MiB", "vs_mcast", "repaired_bytes", "verified")
	var mcast *perfResult
	for _, r := range rows {
		if r.Algo == "mcast" {
			mcast = r.perfResult
		}
		t.row(r.Op, r.Algo, r.Time.P50/1e3, mebibytes(r.SentBytes), fmt.Sprintf("%.2fx", ratio(r.SentBytes, mcast.SentBytes)), r.RepairedBytes, yesNo(r.Verified))
	}
	return t
}

// demoGain compares Allgather by ring with multicast, as it went in this run.
func demoGain(rows []demoRow) string {
	var mcast, ring *perfResult
	for _, r := range rows {
		switch r.Op + " " + r.Algo {
		case "allgather mcast":
			mcast = r.perfResult
		case "allgather ring":
			ring = r.perfResult
		}
	}
	speed := fmt.Sprintf("and took %.2f times as long", ring.Time.P50/mcast.Time.P50)
	if ring.Time.P50 < mcast.Time.P50 {
		speed = fmt.Sprintf("but was faster here, in %.2f of the time", ring.Time.P50/mcast.Time.P50)
	}
	return fmt.Sprintf("Allgather at %d ranks: with ring the busiest rank injected %.2f MiB, with multicast %.2f MiB: ring injects %.2f times as much, %s.",
		mcast.Ranks, mebibytes(ring.SentBytes), mebibytes(mcast.SentBytes), ratio(ring.SentBytes, mcast.SentBytes), speed)
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(1, b)) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
