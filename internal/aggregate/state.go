package aggregate

import (
	"cmp"
	"slices"
	"time"
)

// A State is the state of a Server.
type State struct {
	Addr        string      `json:"addr"`
	Parent      string      `json:"parent,omitempty"`
	Cores       int         `json:"cores"`
	Buffer      int         `json:"receive_buffer"` // bytes of a socket, as the system counts them
	Memory      int64       `json:"memory"`         // bytes that slots occupy
	Reserved    int64       `json:"memory_reserved"`
	Limit       int64       `json:"memory_limit"`
	Running     float64     `json:"running_s"`
	Connections Connections `json:"connections"`
	Data        Data        `json:"data"`
	Jobs        []JobState  `json:"jobs"`
}

// Connections counts control connections.
type Connections struct {
	Accepted  uint64 `json:"accepted"`
	Attached  uint64 `json:"attached"`       // children of a job
	Refused   uint64 `json:"refused"`        // with the site key, for a reason that the ranks show
	WrongKeys uint64 `json:"wrong_keys"`     // with another site key
	Versions  uint64 `json:"wrong_versions"` // of another version
	Strangers uint64 `json:"strangers"`      // anything else
	Expired   uint64 `json:"expired"`        // children without heartbeats
}

// Data counts datagrams of all jobs. The counters of a job are lost when it ends; these are not.
type Data struct {
	Datagrams uint64 `json:"datagrams"` // of a session that is known here
	Bytes     uint64 `json:"bytes"`
	Malformed uint64 `json:"malformed"`       // neither a contribution nor of its size
	Unknown   uint64 `json:"unknown_session"` // of no session here
	Forged    uint64 `json:"forged"`          // with a wrong token
	Invalid   uint64 `json:"invalid"`         // with a token, but not valid in its session
	Dropped   uint64 `json:"dropped"`         // messages that a full receive queue dropped
	Reads     uint64 `json:"reads"`           // messages; each has one datagram or more
	Sums      uint64 `json:"sums"`
	SumBytes  uint64 `json:"sum_bytes"` // of sums and wants
	Writes    uint64 `json:"writes"`    // messages with sums and wants
	Unsent    uint64 `json:"unsent"`    // sums and wants without an address, or that the network refused
	Errors    uint64 `json:"receive_errors"`
}

// A JobState is the state of a job.
type JobState struct {
	Job      string   `json:"job"`
	Session  uint32   `json:"session"`
	Ranks    int      `json:"ranks"`
	Children int      `json:"children"`
	Attached int      `json:"attached"`
	Usable   bool     `json:"usable"`
	Why      string   `json:"why,omitempty"` // reason why it is not usable
	Window   uint32   `json:"window"`        // slots of a communicator
	Chunk    int      `json:"chunk"`
	Memory   int64    `json:"memory"`
	Reserved int64    `json:"memory_reserved"`
	Age      float64  `json:"age_s"`
	Stats    JobStats `json:"stats"`
}

// JobStats are the counters of a job: inc.SessionStats with names for JSON.
type JobStats struct {
	Contributions uint64 `json:"contributions"`
	Duplicates    uint64 `json:"duplicates"`
	Stale         uint64 `json:"stale"`
	Forged        uint64 `json:"forged"`
	Malformed     uint64 `json:"malformed"`
	Offers        uint64 `json:"offers"` // contributions that ranks offered to send again
	Wanted        uint64 `json:"wanted"` // offers that were accepted, because the contribution was missing
	Sums          uint64 `json:"sums"`
	Repeated      uint64 `json:"repeated"`
	Evicted       uint64 `json:"evicted_communicators"` // those that lost their slots to another one
	Crowded       uint64 `json:"crowded"`
}

// State returns the current state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{
		Addr: s.Addr().String(), Parent: s.cfg.Parent, Cores: s.cfg.Cores, Buffer: s.Buffer(), Reserved: s.memory,
		Limit: s.cfg.Memory, Running: time.Since(s.started).Seconds(),
		Connections: Connections{
			Accepted: s.conns.accepted.Load(), Attached: s.conns.attached.Load(), Refused: s.conns.refused.Load(),
			WrongKeys: s.conns.wrongKeys.Load(), Versions: s.conns.wrongVersions.Load(),
			Strangers: s.conns.strangers.Load(), Expired: s.conns.expired.Load(),
		},
		Data: s.data.state(),
		Jobs: []JobState{}, // not null in JSON
	}
	st.Data.add(&s.past)
	for _, sock := range s.sockets {
		st.Data.Dropped += sock.drops()
	}
	for _, j := range s.jobs {
		js, unsent := j.state()
		st.Data.add(&js.Stats)
		st.Data.Unsent += unsent
		st.Memory += js.Memory
		st.Jobs = append(st.Jobs, js)
	}
	slices.SortFunc(st.Jobs, func(a, b JobState) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Session, b.Session))
	})
	return st
}

func (c *dataCounters) state() Data {
	return Data{
		Datagrams: c.datagrams.Load(), Bytes: c.bytes.Load(), Malformed: c.malformed.Load(), Unknown: c.unknown.Load(),
		Reads: c.messages.Load(), Sums: c.sums.Load(), SumBytes: c.sumBytes.Load(), Writes: c.trains.Load(),
		Unsent: c.unsent.Load(), Errors: c.receiveErrors.Load(),
	}
}

func (d *Data) add(s *JobStats) {
	d.Forged += s.Forged
	d.Invalid += s.Malformed
}

// state returns the state of a job, and the number of its sums without an address. The caller holds the server's lock.
func (j *job) state() (JobState, uint64) {
	j.data.mu.Lock()
	defer j.data.mu.Unlock()
	return JobState{
		Job: j.name, Session: j.id, Ranks: j.size, Children: len(j.children), Attached: len(j.children) - j.missing,
		Usable: j.status.Window > 0, Why: j.status.Why, Window: j.window, Chunk: j.chunk,
		Memory: j.data.session.Memory(), Reserved: j.memory, Age: time.Since(j.created).Seconds(),
		Stats: JobStats(j.data.session.Stats()),
	}, j.data.unsent
}
