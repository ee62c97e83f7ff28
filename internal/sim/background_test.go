package sim

import (
	"reflect"
	"testing"

	"github.com/allcast/allcast/internal/background"
)

// besides returns an Allgather on a network that other jobs use.
func besides(t *testing.T, algo string, spec background.Spec, queue int64) Config {
	t.Helper()
	return Config{
		Op: "allgather", Algo: algo, Topology: network(t, "fat-tree:16,4,2", 4, "random:1"), Bytes: 256 << 10, Seed: 1,
		Schedule: Schedule{Chunk: 4096, Subgroups: 2},
		Network:  Network{Rate: 10e9, Latency: 500, Background: spec, Queue: queue},
	}
}

// Traffic of other jobs slows a collective down, and nothing counts it but BackgroundBytes.
func TestBackgroundTraffic(t *testing.T) {
	for _, algo := range []string{"ring", "mcast"} {
		quiet := simulate(t, besides(t, algo, background.Spec{}, 0))
		busy := simulate(t, besides(t, algo, background.Spec{Flows: 16, Share: 0.2, Seed: 1}, 0))
		if !busy.Verified || busy.TimeUS <= quiet.TimeUS || busy.DroppedChunks != 0 {
			t.Errorf("%s: verified %v, %v us; %v us without other jobs; %d drops",
				algo, busy.Verified, busy.TimeUS, quiet.TimeUS, busy.DroppedChunks)
		}
		if busy.BackgroundBytes == 0 || quiet.BackgroundBytes != 0 || len(busy.ByLink) != len(quiet.ByLink) {
			t.Errorf("%s: %d bytes of other jobs, %d without any", algo, busy.BackgroundBytes, quiet.BackgroundBytes)
		}
		same := reflect.DeepEqual(busy.PayloadByLink, quiet.PayloadByLink) && busy.LinkBytes == quiet.LinkBytes
		if algo == "ring" && !same { // multicast may repair chunks that are late
			t.Error("the ring's own bytes depend on other jobs")
		}
	}
}

// The mean rate of other jobs is that of the flows, over two links each.
func TestBackgroundRate(t *testing.T) {
	cfg := besides(t, "ring", background.Spec{Flows: 8, Share: 0.1, Seed: 1}, 0)
	cfg.Bytes = 1 << 20
	r := simulate(t, cfg)
	want := 2 * 8 * 0.1 * cfg.Rate / 8e6 * r.TimeUS
	if got := float64(r.BackgroundBytes); got < 0.7*want || got > 1.3*want {
		t.Errorf("%v bytes of other jobs in %v us, want about %v", got, r.TimeUS, want)
	}
}

func TestBackgroundIsReproducible(t *testing.T) {
	run := func(seed uint64) *Result {
		r := simulate(t, besides(t, "ring", background.Spec{Flows: 16, Share: 0.2, Seed: seed}, 0))
		r.WallMS, r.Background = 0, ""
		return r
	}
	if one, again := run(1), run(1); !reflect.DeepEqual(one, again) {
		t.Errorf("the same seed gives %+v and %+v", one, again)
	}
	if reflect.DeepEqual(run(1), run(2)) {
		t.Error("seeds 1 and 2 give the same result")
	}
}

// A full queue drops foreign packets without counting them. The simulation still ends, and all data is right.
func TestBackgroundInFullQueues(t *testing.T) {
	r := simulate(t, besides(t, "ring", background.Spec{Flows: 32, Share: 0.9, Seed: 1}, 16<<10))
	if !r.Verified || r.DroppedChunks != 0 || r.BackgroundBytes == 0 {
		t.Errorf("verified %v, %d chunks dropped, %d bytes of other jobs", r.Verified, r.DroppedChunks, r.BackgroundBytes)
	}
}

// Foreign packets in flight never need more memory than the buffers that they fill.
func TestBackgroundNeedsLittleMemory(t *testing.T) {
	w, _ := mustWorld(t, besides(t, "ring", background.Spec{Flows: 32, Share: 0.95, Seed: 1}, 0))
	w.pending = 1 // nothing else happens
	w.loop(20e9)  // 20 ms
	packets := len(w.pools.packets.free)
	for _, l := range w.links {
		packets += l.wait[classBulk].len()
	}
	if limit := len(w.links) * int(w.buffer) / 4096; packets > limit || w.events < 10_000 {
		t.Errorf("%d packets after %d events, want at most %d", packets, w.events, limit)
	}
}
