package sim

import (
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

// BenchmarkEvents measures the speed of the simulator on a large network.
func BenchmarkEvents(b *testing.B) {
	g, err := topology.Parse("fat-tree3:1024,32")
	if err != nil {
		b.Fatal(err)
	}
	var events, chunks int64
	for b.Loop() {
		r, err := Run(Config{
			Op: "allgather", Topology: g, Bytes: 8 << 10, Seed: 1,
			Schedule: Schedule{Chunk: 4096, Chains: 1, Subgroups: 1}, Network: Network{Rate: 100e9, Latency: 500},
		})
		if err != nil || !r.Verified {
			b.Fatal(err, r)
		}
		events += r.Events
		chunks += r.ChunksTotal
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(chunks), "ns/chunk")
}
