//go:build linux

// Command receive compares the datapaths that place received data: the process with plain sockets,
// the process with super-packets, and the kernel at its three hooks. One rank sends on one processor.
// The other receives on a second processor, on which the kernel also takes packets from the
// interface. One TCP stream between the same processors is the yardstick. The command needs root and an
// otherwise idle machine.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
)

type config struct {
	rounds int
	iters  int
	bytes  int
	only   string // IDs of configurations; empty: all
	json   bool
	page   string
}

// rate returns the bytes per ns, that is GB/s, of one run.
func (c config) rate(r *result) float64 {
	return float64(c.bytes) * float64(c.iters) / float64(r[wall])
}

func main() {
	log.SetFlags(0)
	if spec := os.Getenv(specVariable); spec != "" {
		if err := rank(spec); err != nil {
			log.Fatal(err)
		}
		return
	}
	var c config
	flag.IntVar(&c.rounds, "rounds", 5, "number of rounds; each measures all configurations")
	flag.IntVar(&c.iters, "n", 10, "Broadcasts per configuration and round")
	flag.IntVar(&c.bytes, "bytes", 64<<20, "bytes per Broadcast")
	flag.StringVar(&c.only, "only", "", "configurations to measure, such as tcp,host,bpf-tcx (default all); implies -json")
	flag.BoolVar(&c.json, "json", false, "print one JSON object per configuration and round, and no table")
	flag.StringVar(&c.page, "page", "docs/offload.md", "page whose table is replaced; empty: print the table")
	flag.Parse()
	c.json = c.json || c.only != "" // a table of some configurations would replace that of all
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}
