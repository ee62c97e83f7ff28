package observe

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/fabric"
)

// Bounds of the operation time histogram, in seconds.
var buckets = [...]float64{1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, .1, .3, 1, 3, 10, 30, 100}

// A Series identifies operations that are counted together.
type Series struct {
	Op, Algo string
}

// Tally counts operations that ended the same way.
type Tally struct {
	Outcomes map[string]uint64
	counts   [len(buckets) + 1]uint64
	sum      float64
}

// Tallies counts the operations of a process. It is not safe for concurrent use.
type Tallies map[Series]*Tally

// Add counts an operation.
func (t Tallies) Add(s Series, outcome string, took time.Duration) {
	k := t[s]
	if k == nil {
		k = &Tally{Outcomes: map[string]uint64{}}
		t[s] = k
	}
	k.Outcomes[outcome]++
	i, _ := slices.BinarySearch(buckets[:], took.Seconds())
	k.counts[i]++
	k.sum += took.Seconds()
}

// Clone returns a copy for other goroutines.
func (t Tallies) Clone() Tallies {
	c := make(Tallies, len(t))
	for s, k := range t {
		k := *k
		k.Outcomes = maps.Clone(k.Outcomes)
		c[s] = &k
	}
	return c
}

// A Metric is a number with a name.
type Metric struct {
	Name  string // without the prefix; counters end in _total
	Help  string
	Value float64
}

// Metrics is the input of Write.
type Metrics struct {
	Job, Version string
	Rank, Size   int
	Answers      bool // whether the node responds; the fields below are set only if it does
	Numbers      []Metric
	Peers        map[int]fabric.PeerStats // traffic over reliable connections
	Tallies      Tallies
	Aggregator   *aggregate.State // nil for a rank; otherwise only this and the version are set
}

// Write writes the metrics in Prometheus's text format, version 0.0.4.
func (m *Metrics) Write(w io.Writer) error {
	if m.Aggregator != nil {
		return writeAggregator(w, m.Aggregator, m.Version)
	}
	var b bytes.Buffer
	rank := strconv.Itoa(m.Rank)
	head(&b, "info", "gauge", "Who this is. All ranks are world ranks.")
	line(&b, "info", 1, "job", m.Job, "rank", rank, "size", strconv.Itoa(m.Size), "version", m.Version)
	head(&b, "answers", "gauge", "1 if the process's control side answers, 0 if it is stuck.")
	answers := 0.0
	if m.Answers {
		answers = 1
	}
	line(&b, "answers", answers, "rank", rank)
	for _, n := range m.Numbers {
		kind := "gauge"
		if strings.HasSuffix(n.Name, "_total") {
			kind = "counter"
		}
		head(&b, n.Name, kind, n.Help)
		line(&b, n.Name, n.Value, "rank", rank)
	}
	m.writePeers(&b, rank)
	m.writeOperations(&b, rank)
	_, err := w.Write(b.Bytes())
	return err
}

func (m *Metrics) writePeers(b *bytes.Buffer, rank string) {
	peers := slices.Sorted(maps.Keys(m.Peers))
	write := func(name, help string, bytes func(fabric.PeerStats) uint64) {
		if len(peers) > 0 {
			head(b, name, "counter", help)
		}
		for _, p := range peers {
			line(b, name, float64(bytes(m.Peers[p])), "rank", rank, "peer", strconv.Itoa(p))
		}
	}
	write("peer_sent_bytes_total", "Bytes sent to a world rank over its connection.",
		func(p fabric.PeerStats) uint64 { return p.Sent })
	write("peer_received_bytes_total", "Bytes received from a world rank over its connection.",
		func(p fabric.PeerStats) uint64 { return p.Received })
}

func (m *Metrics) writeOperations(b *bytes.Buffer, rank string) {
	if len(m.Tallies) == 0 {
		return
	}
	series := slices.SortedFunc(maps.Keys(m.Tallies), func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Algo, b.Algo))
	})
	head(b, "operations_total", "counter", "Operations that have ended.")
	for _, s := range series {
		for _, o := range slices.Sorted(maps.Keys(m.Tallies[s].Outcomes)) {
			n := float64(m.Tallies[s].Outcomes[o])
			line(b, "operations_total", n, "rank", rank, "op", s.Op, "algo", s.Algo, "outcome", o)
		}
	}
	head(b, "operation_seconds", "histogram", "How long operations took, from their call on.")
	for _, s := range series {
		m.Tallies[s].write(b, "rank", rank, "op", s.Op, "algo", s.Algo)
	}
}

func (k *Tally) write(b *bytes.Buffer, labels ...string) {
	n := uint64(0)
	for i, c := range k.counts {
		n += c
		le := "+Inf"
		if i < len(buckets) {
			le = strconv.FormatFloat(buckets[i], 'g', -1, 64)
		}
		line(b, "operation_seconds_bucket", float64(n), append(labels[:len(labels):len(labels)], "le", le)...)
	}
	line(b, "operation_seconds_sum", k.sum, labels...)
	line(b, "operation_seconds_count", float64(n), labels...)
}

func head(b *bytes.Buffer, name, kind, help string) {
	_, _ = fmt.Fprintf(b, "# HELP allcast_%s %s\n# TYPE allcast_%s %s\n", name, help, name, kind)
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func line(b *bytes.Buffer, name string, value float64, labels ...string) {
	b.WriteString("allcast_" + name)
	if len(labels) == 0 {
		b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
		return
	}
	b.WriteByte('{')
	for i := 0; i < len(labels); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	b.WriteString("} " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}
