//go:build linux

// Command auto checks the promise of the algorithm "auto": on every network and at every size, it takes at most
// 1.15 times as long as the best fixed choice. Each round runs auto and every fixed choice once, one after the
// other, on the same ranks. A ratio is the median over the rounds of the time of auto over the time of a fixed
// choice of the same round.
//
//	go run ./bench/auto                                       all networks, operations and sizes; takes long
//	go run ./bench/auto -networks local:8 -operations broadcast,allgather
//	go run ./bench/auto -networks star:8@200mbit -operations allgather -sizes 64K,1M
//
// The command exits with status 1 if a ratio is larger than the promise. Networks other than local:N need root.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/units"
)

const (
	specVariable = "AUTO_SPEC" // environment variable that carries the spec to the ranks
	promise      = 1.15
	maxRun       = 10 * time.Minute // time after which a job has failed
)

const (
	allNetworks   = "local:4,local:8,star:8,star:8@200mbit,fat-tree:32,4,2"
	allOperations = "broadcast,allgather,reduce-scatter,allreduce,alltoall"
	allSizes      = "1,64,1K,4K,16K,64K,256K,1M,4M,16M"
)

// spec is the work of the ranks of one job.
type spec struct {
	Operations []string
	Sizes      []int64
	Rounds     int
	MaxCall    time.Duration // time of auto above which a size is too large for the network
	Out        string        // file for the results of rank 0
}

// config holds the command line.
type config struct {
	spec
	networks []string
	jobs     int
	json     bool
}

func main() {
	log.SetFlags(0)
	if text := os.Getenv(specVariable); text != "" {
		if err := rank(text); err != nil {
			log.Fatal(err)
		}
		return
	}
	cfg, err := parse()
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		stop()
		log.Fatal(err)
	}
}

func parse() (*config, error) {
	cfg := &config{}
	networks := flag.String("networks", allNetworks, "`list` of local:RANKS and TOPOLOGY[@RATE], separated by commas")
	operations := flag.String("operations", allOperations, "`list` of operations")
	sizes := flag.String("sizes", allSizes, "`list` of sizes in bytes, as of perf")
	flag.IntVar(&cfg.Rounds, "rounds", 7, "number of rounds of each job")
	flag.IntVar(&cfg.jobs, "jobs", 3, "number of jobs; each calibrates anew")
	flag.DurationVar(&cfg.MaxCall, "max", 200*time.Millisecond, "skip sizes at which auto takes longer")
	flag.BoolVar(&cfg.json, "json", false, "print one JSON object per network, operation and size instead of text")
	flag.Parse()
	if flag.NArg() > 0 || cfg.Rounds < 1 || cfg.jobs < 1 {
		return nil, errors.New("want flags only, with at least one round and one job; see -help")
	}
	cfg.networks, cfg.Operations = splitNetworks(*networks), strings.Split(*operations, ",")
	for _, text := range strings.Split(*sizes, ",") {
		n, err := units.ParseSize(text)
		if err != nil {
			return nil, err
		}
		cfg.Sizes = append(cfg.Sizes, int64(n))
	}
	for _, op := range cfg.Operations {
		if starters[op] == nil {
			return nil, fmt.Errorf("%q is no operation of this benchmark; valid: %s", op, allOperations)
		}
	}
	return cfg, nil
}

// splitNetworks splits a list of networks. A comma inside of a topology is followed by a digit.
func splitNetworks(list string) (all []string) {
	for _, part := range strings.Split(list, ",") {
		if len(all) > 0 && part != "" && part[0] >= '0' && part[0] <= '9' {
			all[len(all)-1] += "," + part
		} else {
			all = append(all, part)
		}
	}
	return all
}

func run(ctx context.Context, cfg *config) error {
	dir, err := os.MkdirTemp("", "allcast-auto-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	allcast := filepath.Join(dir, "allcast")
	build := exec.CommandContext(ctx, "go", "build", "-o", allcast, "./cmd/allcast")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build cmd/allcast (run this command in the repository's root): %w", err)
	}
	cfg.Out = filepath.Join(dir, "results")
	broken := 0
	for _, network := range cfg.networks {
		var jobs [][]measurement
		for job := range cfg.jobs {
			got, err := runJob(ctx, allcast, network, &cfg.spec)
			if err != nil {
				return fmt.Errorf("%s: %w", network, err)
			}
			log.Printf("%s: job %d of %d done; Join took %v", network, job+1, cfg.jobs, got[0].Join)
			jobs = append(jobs, got)
		}
		n, err := report(os.Stdout, cfg.json, network, jobs)
		if err != nil {
			return err
		}
		broken += n
	}
	if broken > 0 {
		return fmt.Errorf("auto takes more than %.2f times as long as the best fixed choice in %d cases", promise, broken)
	}
	return nil
}

// runJob runs the ranks of one job and returns what they measured.
func runJob(ctx context.Context, allcast, network string, s *spec) (all []measurement, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var args []string
	if ranks, local := strings.CutPrefix(network, "local:"); local {
		args = []string{"run", "-n", ranks, "--", self}
	} else {
		topology, rate, _ := strings.Cut(network, "@")
		args = []string{"lab", "run", "--topology", topology}
		if rate != "" {
			args = append(args, "--rate", rate)
		}
		args = append(args, "--", self)
	}
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	cmd := exec.CommandContext(ctx, allcast, args...)
	cmd.Env = append(os.Environ(), specVariable+"="+string(text))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // an interrupted command cleans up
	cmd.WaitDelay = 20 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("allcast %s: %w: %s", strings.Join(args, " "), err, out)
	}
	f, err := os.Open(s.Out)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(f); d.More() && err == nil; {
		var m measurement
		if err = d.Decode(&m); err == nil {
			all = append(all, m)
		}
	}
	if err == nil && len(all) == 0 {
		err = errors.New("no size was measured: raise -max")
	}
	return all, cmp.Or(err, f.Close())
}
