package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/fabric"
)

var sample = regexp.MustCompile(`^allcast_[a-z_]+\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\} [0-9.e+-]+$`)

func testMetrics() Metrics {
	ts := Tallies{}
	s := Series{"allgather", "mcast"}
	ts.Add(s, "ok", 20*time.Microsecond)
	ts.Add(s, "ok", 10*time.Microsecond) // a bound belongs to its bucket
	ts.Add(s, "lost", 1000*time.Second)
	ts.Add(Series{"barrier", "ring"}, "ok", 0)
	return Metrics{
		Job: "a\"b\\c\nd", Rank: 3, Size: 8, Version: "1", Answers: true, Tallies: ts,
		Peers:   map[int]fabric.PeerStats{2: {Sent: 5, Received: 6}},
		Numbers: []Metric{{"sent_bytes_total", "Bytes.", 123}, {"operations_running", "Now.", 1}},
	}
}

func TestMetricsText(t *testing.T) {
	m := testMetrics()
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		`allcast_info{job="a\"b\\c\nd",rank="3",size="8",version="1"} 1`,
		"# TYPE allcast_sent_bytes_total counter", "# TYPE allcast_operations_running gauge",
		"# TYPE allcast_operation_seconds histogram",
		`allcast_sent_bytes_total{rank="3"} 123`,
		`allcast_peer_received_bytes_total{rank="3",peer="2"} 6`,
		`allcast_operations_total{rank="3",op="allgather",algo="mcast",outcome="ok"} 2`,
		`allcast_operations_total{rank="3",op="allgather",algo="mcast",outcome="lost"} 1`,
		`allcast_operation_seconds_bucket{rank="3",op="allgather",algo="mcast",le="1e-05"} 1`,
		`allcast_operation_seconds_bucket{rank="3",op="allgather",algo="mcast",le="3e-05"} 2`,
		`allcast_operation_seconds_bucket{rank="3",op="allgather",algo="mcast",le="100"} 2`,
		`allcast_operation_seconds_bucket{rank="3",op="allgather",algo="mcast",le="+Inf"} 3`,
		`allcast_operation_seconds_count{rank="3",op="allgather",algo="mcast"} 3`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing line %s", want)
		}
	}
	types := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if types[name] {
				t.Errorf("repeated line %s", line)
			}
			types[name] = true
		} else if !strings.HasPrefix(line, "# HELP ") && !sample.MatchString(line) {
			t.Errorf("not a sample: %s", line)
		}
	}
}

func TestTalliesClone(t *testing.T) {
	m := testMetrics()
	c := m.Tallies.Clone()
	s := Series{"allgather", "mcast"}
	m.Tallies.Add(s, "ok", time.Second)
	if c[s].Outcomes["ok"] != 2 || m.Tallies[s].Outcomes["ok"] != 3 {
		t.Error("the clone changed with the original")
	}
}

func TestMetricsCannotBeWritten(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	m := testMetrics()
	if err := m.Write(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// Every counter of a job is published, except those that are summed over all jobs.
func TestAggregatorJobCounters(t *testing.T) {
	var stats aggregate.JobStats
	v := reflect.ValueOf(&stats).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(uint64(1000 + i))
	}
	var b bytes.Buffer
	state := aggregate.State{Jobs: []aggregate.JobState{{Job: "x", Stats: stats}}}
	if err := writeAggregator(&b, &state, "1"); err != nil {
		t.Fatal(err)
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Forged" || name == "Malformed" {
			continue
		}
		if n := strings.Count(b.String(), fmt.Sprintf(`{job="x",session="0"} %d`, 1000+i)); n != 1 {
			t.Errorf("%s is published %d times", name, n)
		}
	}
}
