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
// A caller with counters of switch ports converts them into LinkBytes first, and can save them
// in a file:
//
//	bytes, err := report.FromPorts(g, ports)          // switch, port, rx, tx, as a lab prints them
//	data := report.Data{Topology: g.Name, Op: ..., Bytes: ..., Runs: []report.Run{{Name: "ring", LinkBytes: bytes}}}
//	err = data.Save(file)
//
// and draws the runs of any number of such files side by side, in their order:
//
//	data, err := report.Load(file)                    // for each file
//	all, err := report.Merge(first, second)           // one network, one operation
//	page, err := all.Page()
//	err = page.Write(w)
//
// Errors that wrap ErrInput report invalid input; all others are failures to read or write.
package report
