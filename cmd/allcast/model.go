package main

type modelCmd struct {
	PSN modelPSNCmd `cmd:"" name:"psn" help:"PSN bits against bitmap and buffer size, and the memory footprint (Fig. 7, Sec. III-D)."`
}

func (modelCmd) Help() string { return "Example:\n  allcast model psn --chunk 4K" }
