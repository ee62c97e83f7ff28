//go:build linux

// Command peers compares Allcast with Open MPI and MPICH over TCP, and with the limit: a bare
// multicast sender without any protocol. All run the same operations and sizes in one lab, in
// alternation. The command needs root, installs missing Debian packages, and writes
// docs/benchmarks.md.
//
// "peers oversubscribed" compares Allgather on oversubscribed networks, with ranks in order and at random, and writes
// docs/oversubscribed.md. "peers oversubscribed -parts agree" compares the lab with the simulator and the models.
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

// config holds the command line.
type config struct {
	name      string
	topology  string
	ops       []string
	sizes     []int64
	maxGather units.Size // largest size of operations with several blocks of that size per rank
	rounds    int
	only      []string // contestants; empty: all
	json      bool
	docs      string
	tune      int // passes over the peers' algorithms
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		// Inside the lab, this program runs again in these roles.
		switch os.Args[1] {
		case "rsh":
			log.Fatal(rsh(os.Args[2:]))
		case "blast":
			if err := blast(os.Stdin, os.Stdout); err != nil {
				log.Fatal("blast: ", err)
			}
			return
		case "gather":
			if err := gather(os.Args[2:]); err != nil {
				log.Fatal("gather: ", err)
			}
			return
		case "oversubscribed":
			b, err := parseOversubscribed(os.Args[2:])
			if err != nil {
				log.Fatal(err)
			}
			start(b.run)
			return
		}
	}
	cfg, err := parse()
	if err != nil {
		log.Fatal(err)
	}
	start(func(ctx context.Context) error { return run(ctx, cfg) })
}

// start runs a benchmark until it ends or a signal interrupts it.
func start(run func(context.Context) error) {
	// The first signal starts the cleanup, and later signals must not interrupt it.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
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
	ops := flag.String("ops", operationNames, "operations")
	sizes := flag.String("sizes", "1K,4K,16K,64K,256K,1M,4M,16M", "bytes that one rank sends")
	flag.TextVar(&cfg.maxGather, "allgather-max", units.Size(4<<20),
		"largest of these sizes for operations with several blocks per rank")
	flag.IntVar(&cfg.rounds, "rounds", 5, "number of rounds; each measures all contestants")
	only := flag.String("only", "", "contestants, such as allcast-auto,open-mpi-default,bare-multicast (default all)")
	flag.BoolVar(&cfg.json, "json", false, "print one JSON object per result instead of tables, and write no page")
	flag.StringVar(&cfg.docs, "docs", "docs/benchmarks.md", "page to write; empty: only print")
	flag.IntVar(&cfg.tune, "tune", 2, "passes over the peers' algorithms, to find the best one per size")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", flag.Arg(0))
	case cfg.rounds < 1:
		return nil, fmt.Errorf("-rounds %d: want 1 or more", cfg.rounds)
	case cfg.tune < 0:
		return nil, fmt.Errorf("-tune %d: want 0 or more", cfg.tune)
	}
	cfg.ops = strings.Split(*ops, ",")
	reduces := false
	for _, op := range cfg.ops {
		o, ok := operations[op]
		if !ok {
			return nil, fmt.Errorf("-ops: unknown operation %q; valid: %s", op, operationNames)
		}
		reduces = reduces || o.reduces
	}
	if *only != "" {
		for _, name := range strings.Split(*only, ",") {
			i := slices.IndexFunc(contestants("broadcast"), func(c string) bool { return flagName(c) == name })
			if i < 0 {
				return nil, fmt.Errorf("-only: unknown contestant %q", name)
			}
			cfg.only = append(cfg.only, contestants("broadcast")[i])
		}
	}
	if cfg.json {
		cfg.docs = ""
	}
	for _, s := range strings.Split(*sizes, ",") {
		n, err := units.ParseSize(s)
		if err != nil {
			return nil, fmt.Errorf("-sizes: %w", err)
		}
		if n < 1 || reduces && n%4 != 0 {
			return nil, fmt.Errorf("-sizes: %v: want 1 or more, and multiples of 4 for reductions of floats", n)
		}
		cfg.sizes = append(cfg.sizes, int64(n))
	}
	slices.Sort(cfg.sizes)
	return cfg, nil
}

// sizesOf returns the sizes of an operation, in ascending order.
func (cfg *config) sizesOf(op string) []int64 {
	return slices.DeleteFunc(slices.Clone(cfg.sizes), func(n int64) bool {
		return operations[op].buffers(8) > 2 && n > int64(cfg.maxGather)
	})
}

// flagName returns the name of a contestant on the command line.
func flagName(contestant string) string {
	return strings.ReplaceAll(strings.ToLower(contestant), " ", "-")
}
