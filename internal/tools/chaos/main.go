//go:build linux

// Command chaos runs random operations while ranks are killed, stopped or cut off at random, while the
// network loses many datagrams, while contexts end, while ranks leave, or while aggregators are killed,
// stopped and restarted. It checks that every call ends in time, either with the right bytes or with an
// error that names a rank that really failed. See docs/chaos.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/e2e/aggregator"
	"github.com/allcast/allcast/internal/lab"
)

// config holds the command line options.
type config struct {
	mode    mode
	time    time.Duration
	seed    uint64
	hosts   int
	timeout time.Duration
	name    string
	local   bool
	keep    bool
	size    int // maximum bytes of a call
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		// This program also runs inside the lab.
		switch os.Args[1] {
		case "hold":
			log.Fatal(lab.Hold(os.Args[2], os.Stdin, os.Stdout))
		case "enter":
			log.Fatal(lab.Enter(os.Args[2], []string{"/proc/self/exe", "rank"}))
		case "aggregator":
			log.Fatal(aggregator.Run(os.Args[2:]))
		case "rank":
			os.Exit(rankMain())
		}
	}
	cfg, err := parse()
	if err != nil {
		log.Fatal(err)
	}
	// The first signal starts the cleanup. No further signal may end the process before it is done.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		log.Fatal(err)
	}
}

func parse() (*config, error) {
	cfg := &config{mode: modeFaults}
	flag.Var(&cfg.mode, "mode", "kind of trouble: faults, loss, cancel, leave or aggregators")
	flag.DurationVar(&cfg.time, "time", 10*time.Minute, "duration of the run")
	flag.Uint64Var(&cfg.seed, "seed", 0, "seed of operations and faults; 0: from the clock")
	flag.IntVar(&cfg.hosts, "hosts", 0, "number of ranks; 0: 8, or 4 in mode loss")
	flag.DurationVar(&cfg.timeout, "timeout", 30*time.Second, "silence after which a rank is lost")
	flag.StringVar(&cfg.name, "name", "chaos", "name of the lab")
	flag.BoolVar(&cfg.local, "local", false, "run processes on loopback, without a lab: no links are cut")
	flag.BoolVar(&cfg.keep, "keep", false, "keep the ranks' logs even without a violation")
	flag.IntVar(&cfg.size, "size", 0, "maximum bytes of a call; 0: 4 MiB, or 512 MiB in mode loss")
	flag.Parse()
	cfg.hosts = cmp.Or(cfg.hosts, modes[cfg.mode].hosts)
	cfg.size = cmp.Or(cfg.size, modes[cfg.mode].size)
	cfg.seed = cmp.Or(cfg.seed, uint64(time.Now().UnixNano()))
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", flag.Arg(0))
	case cfg.hosts < minRanks+1 || cfg.hosts > 32:
		return nil, fmt.Errorf("-hosts %d: want %d to 32", cfg.hosts, minRanks+1)
	case cfg.local && cfg.mode == modeAggregators:
		return nil, errors.New("-mode aggregators needs a lab: leave out -local")
	case cfg.timeout < time.Second || cfg.size < 1:
		return nil, errors.New("want -timeout 1s or more, and -size 1 or more")
	}
	return cfg, nil
}
