package main

type modelCmd struct {
	Traffic modelTrafficCmd `cmd:"" help:"Block-link traversals of Allgather and Broadcast, by algorithm (Fig. 2)."`
	PSN     modelPSNCmd     `cmd:"" name:"psn" help:"PSN bits against bitmap and buffer size, and the memory footprint (Fig. 7, Sec. III-D)."`
	Speedup modelSpeedupCmd `cmd:"" help:"Concurrent Allgather and Reduce-Scatter: shares, bytes and speed-up (Fig. 3, App. B)."`
	DPA     modelDPACmd     `cmd:"" name:"dpa" help:"The NIC's accelerator, cycle by cycle: throughput of the receive kernels (Table I, Fig. 13-16)."`
}

func (modelCmd) Help() string {
	return "Example:\n  allcast model traffic --topology fat-tree3:1024,32"
}
