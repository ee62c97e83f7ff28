//go:build linux

package main

import "slices"

// operation describes what the contestants run.
type operation struct {
	ranks int // number of ranks; 0 for all hosts
	// Bytes per rank, for N bytes and P ranks, in units of N.
	received func(p int64) int64
	buffers  func(p int64) int64
	// multicast says that Allcast has an algorithm with multicast, and that bare multicast is a limit.
	multicast bool
	reduces   bool // whether it adds elements of type float
	// Names for the peers' options that select an algorithm; empty if only the default is compared.
	openMPI, mpich string
}

func one(int64) int64       { return 1 }
func two(int64) int64       { return 2 }
func others(p int64) int64  { return p - 1 }
func oneMore(p int64) int64 { return p + 1 }
func window(int64) int64    { return messages }

// messages is the number of messages of a stream, as in perf.c and in OSU's benchmark.
const messages = 64

var operations = map[string]operation{
	"broadcast":      {received: one, buffers: one, multicast: true, openMPI: "bcast", mpich: "BCAST"},
	"allgather":      {received: others, buffers: oneMore, multicast: true, openMPI: "allgather", mpich: "ALLGATHER"},
	"gather":         {received: others, buffers: oneMore}, // of the root
	"scatter":        {received: one, buffers: oneMore},
	"alltoall":       {received: others, buffers: func(p int64) int64 { return 2 * p }},
	"reduce":         {received: one, buffers: two, reduces: true},
	"allreduce":      {received: two, buffers: two, reduces: true}, // both halves, each with (P-1)/P of the vector
	"reduce-scatter": {received: others, buffers: oneMore, reduces: true},
	"pingpong":       {ranks: 2, received: one, buffers: two},
	"stream":         {ranks: 2, received: window, buffers: window},
}

// operationNames lists the operations in the order of the page.
const operationNames = "broadcast,allgather,gather,scatter,alltoall,reduce,allreduce,reduce-scatter,pingpong,stream"

// ranksOf returns the number of ranks that run an operation.
func (bed *testbed) ranksOf(op string) int {
	if r := operations[op].ranks; r > 0 {
		return r
	}
	return bed.ranks
}

// contestants lists the contestants of an operation that the command line selects.
func (cfg *config) contestants(op string) []string {
	return slices.DeleteFunc(contestants(op), func(c string) bool { return !cfg.selects(c) })
}

// selects reports whether a contestant is measured.
func (cfg *config) selects(contestant string) bool {
	return len(cfg.only) == 0 || slices.Contains(cfg.only, contestant)
}

// contestants lists all contestants of an operation.
func contestants(op string) (list []string) {
	if operations[op].multicast {
		list = append(list, bareMulticast)
	}
	list = append(list, allcastAs(op)...)
	for _, m := range peers {
		list = append(list, m.name+" default")
		if len(m.algorithms[op]) > 0 {
			list = append(list, m.name+" best")
		}
	}
	return list
}

// allcastAs lists the contestants that are Allcast.
func allcastAs(op string) []string {
	if operations[op].multicast {
		return []string{auto, mcast}
	}
	return []string{auto}
}
