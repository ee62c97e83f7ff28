package observe

import (
	"time"

	"github.com/allcast/allcast/internal/aggregate"
)

// A State is the state of a process. Ranks are world ranks unless a field says otherwise;
// durations are in seconds.
type State struct {
	Job       string    `json:"job"`
	Rank      int       `json:"rank"`
	Size      int       `json:"size"`
	Pid       int       `json:"pid"`
	Host      string    `json:"host,omitempty"`
	Program   string    `json:"program,omitempty"`
	Version   string    `json:"version,omitempty"`
	Interface string    `json:"interface,omitempty"`
	Multicast string    `json:"no_multicast,omitempty"` // reason why multicast is not used
	Metrics   string    `json:"metrics,omitempty"`      // address of the metrics
	Time      time.Time `json:"time"`
	Joined    float64   `json:"joined_s"` // time since Join
	Answers   bool      `json:"answers"`  // whether the node responds; the fields below are set only if it does
	Comms     []Comm    `json:"comms,omitempty"`
	Peers     []Peer    `json:"peers,omitempty"` // ranks that it has heard from or lost
	Events    []Record  `json:"events,omitempty"`
	Recorded  uint64    `json:"events_total,omitempty"`
	// Aggregator is set if the process is an aggregator. It has no rank, and its job is AggregatorJob.
	Aggregator *aggregate.State `json:"aggregator,omitempty"`
}

// A Comm is a communicator.
type Comm struct {
	ID      uint32 `json:"id"`
	Name    string `json:"name"`
	Rank    int    `json:"rank"` // this process's rank in the communicator
	Size    int    `json:"size"`
	Calls   uint64 `json:"calls"` // operations numbered so far
	Linger  int    `json:"lingering,omitempty"`
	Broken  string `json:"broken,omitempty"` // reason, if it is broken
	Culprit *int   `json:"culprit,omitempty"`
	Ops     []Op   `json:"ops,omitempty"`
}

// An Op is an operation that has not ended.
type Op struct {
	Op      string  `json:"op"`
	Algo    string  `json:"algo"`
	Phase   string  `json:"phase"`
	Seq     uint64  `json:"seq"`
	Round   int     `json:"round,omitempty"`
	Rounds  int     `json:"rounds,omitempty"` // set if there is more than one
	Bytes   int64   `json:"bytes"`
	For     float64 `json:"for_s"`
	WaitsOn int     `json:"waits_for"` // this process's own rank if it waits for no other
	Missing string  `json:"missing"`
}

// A Peer is the state of another process as this one knows it.
type Peer struct {
	Rank   int     `json:"rank"`
	Heard  bool    `json:"heard"`
	Silent float64 `json:"silent_s"` // time since its last message
	Lost   bool    `json:"lost,omitempty"`
}

// A Record is an Event in words.
type Record struct {
	Ago   float64 `json:"ago_s"`
	What  string  `json:"what"`
	How   string  `json:"detail,omitempty"`
	Comm  uint32  `json:"comm"`
	Seq   uint64  `json:"seq"`
	Peer  *int    `json:"peer,omitempty"`
	N     int64   `json:"n,omitempty"`
	Text  string  `json:"text,omitempty"`
	Times uint32  `json:"times,omitempty"` // number of repetitions, if more than one
}

// Records describes events in words, with their ages at a given time of the process's clock.
func Records(events []Event, now int64) []Record {
	out := make([]Record, len(events))
	for i := range events {
		e := &events[i]
		out[i] = Record{
			Ago: Seconds(now - e.At), What: e.Kind.String(), How: e.Detail(), Comm: e.Comm, Seq: e.Seq, N: e.N, Text: e.Text,
		}
		if e.Peer != NoPeer {
			peer := int(e.Peer)
			out[i].Peer = &peer
		}
		if e.Times > 1 {
			out[i].Times = e.Times
		}
	}
	return out
}

// Seconds converts nanoseconds.
func Seconds(ns int64) float64 { return float64(ns) / 1e9 }
