//go:build linux

// Command receive compares who puts received data in place: the process with plain sockets,
// the process with super-packets, and the kernel at its three hooks. One rank sends, on one
// processor; one receives, on another, where the kernel also takes the packets from its
// interface. It needs root, and a machine that does nothing else.
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
	page   string
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
	flag.IntVar(&c.rounds, "rounds", 5, "how often each is measured, in turn")
	flag.IntVar(&c.iters, "n", 10, "Broadcasts in a round")
	flag.IntVar(&c.bytes, "bytes", 64<<20, "bytes of a Broadcast")
	flag.StringVar(&c.page, "page", "docs/offload.md", "page whose table is replaced; empty: print it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}
