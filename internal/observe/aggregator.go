package observe

import (
	"bytes"
	"io"
	"strconv"

	"github.com/allcast/allcast/internal/aggregate"
)

// AggregatorJob stands for the job in the socket name of an aggregator, which serves many jobs.
const AggregatorJob = "aggregator"

// writeAggregator writes the metrics of an aggregator.
func writeAggregator(w io.Writer, a *aggregate.State, version string) error {
	var b bytes.Buffer
	head(&b, "aggregator_info", "gauge", "Address of this aggregator and of its parent.")
	line(&b, "aggregator_info", 1, "addr", a.Addr, "parent", a.Parent, "version", version)
	number := func(name, kind, help string, v float64) {
		head(&b, name, kind, help)
		line(&b, name, v)
	}
	number("aggregator_jobs", "gauge", "Jobs that have a session here.", float64(len(a.Jobs)))
	number("aggregator_memory_bytes", "gauge", "Memory of the slots of all jobs.", float64(a.Memory))
	number("aggregator_memory_reserved_bytes", "gauge", "Memory that the slots of all jobs may take.",
		float64(a.Reserved))
	number("aggregator_memory_limit_bytes", "gauge", "Limit of the reserved memory.", float64(a.Limit))
	labelled(&b, "aggregator_connections_total", "Control connections by what became of them.", "outcome",
		tagged{"attached", a.Connections.Attached}, tagged{"refused", a.Connections.Refused},
		tagged{"wrong_key", a.Connections.WrongKeys}, tagged{"wrong_version", a.Connections.Versions},
		tagged{"stranger", a.Connections.Strangers})
	number("aggregator_expired_children_total", "counter", "Children without heartbeats.",
		float64(a.Connections.Expired))
	number("aggregator_datagrams_total", "counter", "Datagrams received for sessions that exist.",
		float64(a.Data.Datagrams))
	number("aggregator_received_bytes_total", "counter", "Bytes of all datagrams.", float64(a.Data.Bytes))
	number("aggregator_reads_total", "counter", "Messages received; one may hold many datagrams.",
		float64(a.Data.Reads))
	labelled(&b, "aggregator_ignored_datagrams_total", "Datagrams that reached no slot.", "reason",
		tagged{"malformed", a.Data.Malformed}, tagged{"unknown_session", a.Data.Unknown},
		tagged{"forged", a.Data.Forged}, tagged{"invalid", a.Data.Invalid}, tagged{"queue_full", a.Data.Dropped})
	number("aggregator_sums_total", "counter", "Sums sent.", float64(a.Data.Sums))
	number("aggregator_sent_bytes_total", "counter", "Bytes of the sums and answers to offers sent.",
		float64(a.Data.SumBytes))
	number("aggregator_writes_total", "counter", "Messages sent; one may hold many sums.", float64(a.Data.Writes))
	number("aggregator_unsent_sums_total", "counter",
		"Sums and answers to offers without an address, or that the network refused.",
		float64(a.Data.Unsent))
	writeAggregatorJobs(&b, a.Jobs)
	_, err := w.Write(b.Bytes())
	return err
}

// A tagged number is the value of a metric for one value of its label.
type tagged struct {
	label string
	value uint64
}

func labelled(b *bytes.Buffer, name, help, label string, samples ...tagged) {
	head(b, name, "counter", help)
	for _, s := range samples {
		line(b, name, float64(s.value), label, s.label)
	}
}

func writeAggregatorJobs(b *bytes.Buffer, jobs []aggregate.JobState) {
	if len(jobs) == 0 {
		return
	}
	each := func(name, kind, help string, value func(*aggregate.JobState) uint64) {
		name = "aggregator_job_" + name
		head(b, name, kind, help)
		for i := range jobs {
			j := &jobs[i]
			line(b, name, float64(value(j)), "job", j.Job, "session", strconv.FormatUint(uint64(j.Session), 10))
		}
	}
	type job = *aggregate.JobState
	each("usable", "gauge", "1 if the aggregators of the job can be used.", func(j job) uint64 {
		if j.Usable {
			return 1
		}
		return 0
	})
	each("attached", "gauge", "Children that are attached.", func(j job) uint64 { return uint64(j.Attached) })
	each("window", "gauge", "Slots of a communicator.", func(j job) uint64 { return uint64(j.Window) })
	each("memory_bytes", "gauge", "Memory of the slots.", func(j job) uint64 { return uint64(j.Memory) })
	each("contributions_total", "counter", "Contributions added.", func(j job) uint64 { return j.Stats.Contributions })
	each("duplicates_total", "counter", "Contributions that had arrived before.",
		func(j job) uint64 { return j.Stats.Duplicates })
	each("stale_total", "counter", "Contributions to chunks that are complete everywhere.",
		func(j job) uint64 { return j.Stats.Stale })
	each("crowded_total", "counter", "Contributions ignored because too many communicators of the job reduce at a time.",
		func(j job) uint64 { return j.Stats.Crowded })
	each("offers_total", "counter", "Contributions that ranks offered to send again.",
		func(j job) uint64 { return j.Stats.Offers })
	each("wanted_total", "counter", "Offers accepted because the contribution was missing.",
		func(j job) uint64 { return j.Stats.Wanted })
	each("sums_total", "counter", "Sums completed.", func(j job) uint64 { return j.Stats.Sums })
	each("repeated_sums_total", "counter", "Sums sent again.", func(j job) uint64 { return j.Stats.Repeated })
	each("evicted_communicators_total", "counter", "Communicators that lost their slots to another one.",
		func(j job) uint64 { return j.Stats.Evicted })
}
