package sim

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/topology"
)

func datapathConfig(t *testing.T, datapath string) Config {
	t.Helper()
	g, err := topology.Parse("star:4")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Op: "broadcast", Algo: "mcast", Topology: g, Bytes: 4 << 20, Seed: 1,
		Schedule: Schedule{Chunk: 4096, Subgroups: 1},
		Network:  Network{Rate: 200e9, Latency: 500 * time.Nanosecond},
		Receiver: Receiver{Datapath: datapath},
	}
}

// One UD thread keeps up with a quarter of the link. With a short queue most chunks are dropped and
// repaired. A core with all its threads drops nothing.
func TestAcceleratorReceives(t *testing.T) {
	for _, c := range []struct {
		datapath string
		named    string
		drops    bool
	}{
		{"", "ideal", false},
		{"dpa:ud,threads=16", "dpa:ud,threads=16,queue=8192", false},
		{"dpa:uc,threads=4,queue=64", "dpa:uc,threads=4,queue=64", false},
		{"dpa:ud,threads=1,queue=64", "dpa:ud,threads=1,queue=64", true},
	} {
		r, err := Run(datapathConfig(t, c.datapath))
		if err != nil {
			t.Fatal(err)
		}
		if !r.Verified || r.Wrong != 0 || len(r.Errors) != 0 || r.Datapath != c.named {
			t.Errorf("%s: verified %v, wrong %d, errors %v, named %s",
				c.datapath, r.Verified, r.Wrong, r.Errors, r.Datapath)
		}
		if (r.DroppedChunks > 0) != c.drops || (r.RepairedChunks > 0) != c.drops {
			t.Errorf("%s: %d dropped, %d repaired of %d", c.datapath, r.DroppedChunks, r.RepairedChunks, r.ChunksTotal)
		}
		if c.drops && (r.RepairedChunks < r.ChunksTotal/2 || r.RepairedChunks > r.DroppedChunks) {
			t.Errorf("%s: %d dropped, %d repaired of %d", c.datapath, r.DroppedChunks, r.RepairedChunks, r.ChunksTotal)
		}
	}
}

// Credit protects a slow accelerator from being overrun.
func TestAcceleratorWithCredit(t *testing.T) {
	cfg := datapathConfig(t, "dpa:ud,threads=1,queue=256")
	cfg.Flow = "credit"
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verified || r.DroppedChunks != 0 {
		t.Errorf("verified %v, %d dropped", r.Verified, r.DroppedChunks)
	}
	// 1024 chunks with 1318 cycles each at 1.8 GHz.
	if r.TimeUS < 1024*1318/1800.0 || r.TimeUS > 1.1*1024*1318/1800.0 {
		t.Errorf("took %.0f us, want about %.0f by the model", r.TimeUS, 1024*1318/1800.0)
	}
}

func TestAcceleratorIsReproducible(t *testing.T) {
	var results []*Result
	for range 2 {
		cfg := datapathConfig(t, "dpa:ud,threads=2,queue=32,port=30")
		cfg.Op, cfg.Bytes, cfg.Loss, cfg.Reorder = "allgather", 1<<20, 0.01, 0.05
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Verified {
			t.Error("not verified")
		}
		r.WallMS = 0
		results = append(results, r)
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		t.Errorf("two runs differ:\n%+v\n%+v", results[0], results[1])
	}
}

func TestBadAccelerator(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"unknown": func(c *Config) { c.Datapath = "cpu" },
		"cost":    func(c *Config) { c.RecvCost = 1 },
		"queue":   func(c *Config) { c.RecvQueue = 1 << 20 },
		"chunk":   func(c *Config) { c.Chunk = 8192 },
	} {
		cfg := datapathConfig(t, "dpa:ud")
		change(&cfg)
		if _, err := Run(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
