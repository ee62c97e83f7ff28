//go:build linux

// Command join measures how ranks join: the time from starting the first process until all have joined, the
// processor time of all, the bytes that rank 0 sends and receives meanwhile, and memory and descriptors per rank.
// All ranks are processes on this machine, so that the processor time of all ranks bounds the time.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	if os.Getenv(rankVariable) != "" {
		if err := rank(); err != nil {
			log.Fatal(err)
		}
		return
	}
	sizes := flag.String("ranks", "16,64,188,512", "numbers of ranks, separated by commas")
	rounds := flag.Int("rounds", 5, "number of rounds; each measures all numbers of ranks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *sizes, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, list string, rounds int) error {
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return fmt.Errorf("-ranks %q: want numbers of at least 2, separated by commas", list)
		}
		sizes = append(sizes, n)
	}
	results := map[int][]result{}
	for range rounds {
		for _, n := range sizes {
			r, err := job(ctx, n)
			if err != nil {
				return fmt.Errorf("%d ranks: %w", n, err)
			}
			results[n] = append(results[n], r)
		}
	}
	return printTable(os.Stdout, sizes, results)
}
