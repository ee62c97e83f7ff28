// Package report draws what the links of a network carried: one HTML page with
// the fat-tree of every run, each link direction coloured by its bytes on one
// scale for all runs, and the totals beside the paper's where they compare.
//
// The page is whole in itself (no script, no link, no font to load), so that it
// can be mailed, kept beside a result and opened anywhere. It has nothing in it
// that depends on when or where it was made: the same Page gives the same bytes.
//
// A caller that has its counts by topology.LinkID draws them at once:
//
//	page := report.Page{Title: "...", Graph: g, Op: "allgather", Bytes: 64 << 10, Runs: []report.Run{
//		{Name: "mcast", Multicast: true, LinkBytes: ...},
//		{Name: "ring", LinkBytes: ...},
//	}}
//	err := page.Write(w)
//
// One that has the counters of switch ports turns them into LinkBytes first, and
// can keep them in a file for later:
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
// Errors that wrap ErrInput are about what was given; all others are failures to
// read or write.
package report
