// Package report draws the traffic of a network's links. One HTML page shows the fat-tree of
// every run, with each link direction coloured by its bytes on one scale for all runs. It also
// shows the totals beside the paper's, where they can be compared.
//
// The page is self-contained (no script, link or font to load), so it can be mailed, archived
// and opened anywhere. It does not depend on time or place: the same Page gives the same bytes.
//
// A caller with byte counts by topology.LinkID draws them directly:
//
//	page := report.Page{Title: "...", Graph: g, Op: "allgather", Bytes: 64 << 10, Runs: []report.Run{
//		{Name: "mcast", Multicast: true, LinkBytes: ...},
//		{Name: "ring", LinkBytes: ...},
//	}}
//	err := page.Write(w)
//
// A caller with counters of switch ports converts them into LinkBytes with FromPorts first. Merge
// puts the runs of several pages side by side.
//
// Errors that wrap ErrInput report invalid input; all others are failures to write.
package report
