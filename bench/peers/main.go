//go:build linux

// Command peers measures Allcast beside what people use today: in one lab, in alternation,
// the same operation and size by Allcast, by a bare multicast sender without any protocol
// (the limit), and by Open MPI and MPICH over TCP. It needs root, installs Debian's
// packages if they are missing, and writes docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/allcast/allcast/internal/units"
)

// config is what was asked for.
type config struct {
	name     string
	topology string
	ops      []string
	sizes    []int64
	most     int64 // of Allgather, whose result is that times the ranks
	rounds   int
	docs     string
	tune     int // passes over the algorithms that can be forced
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		// This program is also what runs inside the lab.
		switch os.Args[1] {
		case "rsh":
			log.Fatal(rsh(os.Args[2:]))
		case "blast":
			if err := blast(os.Stdin, os.Stdout); err != nil {
				log.Fatal("blast: ", err)
			}
			return
		}
	}
	cfg, err := parse()
	if err != nil {
		log.Fatal(err)
	}
	// The first signal takes everything down; until that is done, no other may end us.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			err = errors.New("interrupted")
		}
		log.Fatal(err)
	}
}

func parse() (*config, error) {
	cfg := &config{}
	flag.StringVar(&cfg.name, "name", "peers", "name of the lab")
	flag.StringVar(&cfg.topology, "topology", "star:8", "network")
	ops := flag.String("ops", "broadcast,allgather", "operations")
	sizes := flag.String("sizes", "1K,4K,16K,64K,256K,1M,4M,16M", "bytes that one rank sends")
	most := flag.String("allgather-max", "4M", "largest of these for Allgather")
	flag.IntVar(&cfg.rounds, "rounds", 5, "alternations")
	flag.StringVar(&cfg.docs, "docs", "docs/benchmarks.md", "where to write; empty: only print")
	flag.IntVar(&cfg.tune, "tune", 2, "passes over the peers' algorithms, to find their best at each size")
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	if cfg.rounds < 1 {
		return nil, fmt.Errorf("-rounds %d: want 1 or more", cfg.rounds)
	}
	if cfg.tune < 0 {
		return nil, fmt.Errorf("-tune %d: want 0 or more", cfg.tune)
	}
	cfg.ops = strings.Split(*ops, ",")
	for _, op := range cfg.ops {
		if op != "broadcast" && op != "allgather" {
			return nil, fmt.Errorf("-ops: unknown operation %q; valid: broadcast, allgather", op)
		}
	}
	n, err := units.ParseSize(*most)
	if err != nil {
		return nil, fmt.Errorf("-allgather-max: %w", err)
	}
	cfg.most = int64(n)
	for _, s := range strings.Split(*sizes, ",") {
		n, err := units.ParseSize(s)
		if err != nil {
			return nil, fmt.Errorf("-sizes: %w", err)
		}
		cfg.sizes = append(cfg.sizes, int64(n))
	}
	slices.Sort(cfg.sizes)
	return cfg, nil
}

// sizesOf lists the sizes of an operation, in order.
func (cfg *config) sizesOf(op string) []int64 {
	var list []int64
	for _, n := range cfg.sizes {
		if op == "broadcast" || n <= cfg.most {
			list = append(list, n)
		}
	}
	return list
}
