package dpa

import (
	"cmp"
	"math"
)

// machine is a running accelerator. Times are in cycles.
type machine struct {
	cfg     Config
	loop    []step
	edge    []step
	chunks  int64
	wire    float64 // cycles per full chunk on the link
	copying int64   // cycles per full chunk in the DMA
	workers []worker
	cores   []core
	dma     int64 // time until which the DMA is busy
	ready   events
	sent    [][]int64 // arrivals by worker, if the sender has a window

	running   int
	end       int64
	processed int64
	dropped   int64
	short     bool // whether the last chunk, which may be short, was dropped
	cycles    int64
	waited    int64
	idle      int64 // instructions of polls that found nothing
}

// core is the part of a core that its threads share. Threads reserve in order of time, so a
// reservation is just the time at which it ends.
type core struct {
	slot   int64 // earliest time of the next instruction
	port   int64 // earliest time of the next access
	issued int64
}

const never = math.MaxInt64

type stage uint8

const (
	before stage = iota
	inLoop
	after
)

// worker is one hardware thread with its connection.
type worker struct {
	core    int
	stage   stage
	pc      int
	copying bool  // whether it has requested the DMA
	arrived int64 // chunks, dropped ones included
	next    int64 // arrival of the next chunk, or never
	queued  int64 // completions not yet polled
	posted  int64 // receives
	began   int64 // start of the poll that found the current chunk
	waited  int64 // cycles spent on the copy of the current chunk
}

func newMachine(cfg Config) *machine {
	m := &machine{
		cfg: cfg, loop: kernel(cfg.Transport), edge: edge(), chunks: (cfg.Buffer + cfg.Chunk - 1) / cfg.Chunk,
		wire:    float64(wireBytes(cfg.Transport, cfg.Chunk)) * 8 / cfg.Link * ClockHz,
		copying: int64(math.Round(float64(cfg.Chunk) / pcieBytesPerSecond * ClockHz)),
		workers: make([]worker, cfg.Threads),
		cores:   make([]core, (cfg.Threads+ThreadsPerCore-1)/ThreadsPerCore),
	}
	if cfg.Sender.Window > 0 {
		m.sent = m.schedule()
	}
	for i := range m.workers {
		w := &m.workers[i]
		*w = worker{core: i / ThreadsPerCore, posted: int64(cfg.Queue)}
		w.next, _ = m.arrival(i, 0)
		if w.next != never {
			m.running++
			m.ready.push(event{w.next + activationCycles, i})
		}
	}
	return m
}

func (m *machine) run() *machine {
	for m.running > 0 {
		e := m.ready.pop()
		m.resume(&m.workers[e.worker], e)
	}
	return m
}

// last is the length of the last chunk.
func (m *machine) last() int64 { return m.cfg.Buffer - (m.chunks-1)*m.cfg.Chunk }

// wireTime is the time of a chunk on the link, in cycles.
func (m *machine) wireTime(chunk int64) float64 {
	if chunk < m.chunks-1 {
		return m.wire
	}
	return float64(wireBytes(m.cfg.Transport, m.last())) * 8 / m.cfg.Link * ClockHz
}

// arrival is the time at which the k-th chunk of a worker is in memory and its completion in the queue, or never. It
// also returns the number of that chunk in the buffer.
func (m *machine) arrival(worker int, k int64) (at, chunk int64) {
	if m.sent != nil {
		from, to := m.block(worker)
		if from+k >= to {
			return never, m.chunks
		}
		return m.sent[worker][k], from + k
	}
	chunk = int64(worker) + k*int64(m.cfg.Threads)
	if chunk >= m.chunks {
		return never, m.chunks
	}
	return int64(math.Ceil(float64(chunk)*m.wire + m.wireTime(chunk))), chunk
}

// take lets all due chunks arrive. Only the worker itself makes room, so arrivals can be
// processed late.
func (m *machine) take(w *worker, id int, now int64) {
	for w.next <= now {
		_, chunk := m.arrival(id, w.arrived)
		w.arrived++
		w.next, _ = m.arrival(id, w.arrived)
		if w.posted == 0 {
			m.dropped++
			m.short = m.short || chunk == m.chunks-1
			continue
		}
		w.posted--
		w.queued++
	}
}

// over reports whether all chunks have arrived and been processed.
func (w *worker) over() bool { return w.queued == 0 && w.next == never }

// resume continues a worker whose access is done: it finishes the step and issues the next.
func (m *machine) resume(w *worker, e event) {
	if w.copying {
		w.copying = false
		m.copy(w, e)
		return
	}
	if w.pc > 0 {
		m.finish(w, e)
	}
	if w.stage == after && w.pc == len(m.edge) {
		m.running--
		m.end = max(m.end, e.at+notifyCycles)
		return
	}
	m.issue(w, e)
}

// finish completes the step whose access is done.
func (m *machine) finish(w *worker, e event) {
	if w.stage != inLoop {
		if w.stage == before && w.pc == len(m.edge) {
			w.stage, w.pc = inLoop, 0
		}
		return
	}
	switch s := m.loop[w.pc-1]; s.kind {
	case poll:
		m.take(w, e.worker, e.at)
		switch {
		case w.queued > 0:
			w.queued--
		case w.over():
			w.stage, w.pc = after, 0
		default:
			w.pc = 0
			m.idle += s.instr
		}
	case repost:
		m.take(w, e.worker, e.at)
		w.posted++
	}
	if w.stage == inLoop && w.pc == len(m.loop) {
		m.chunkDone(w, e)
	}
}

func (m *machine) chunkDone(w *worker, e event) {
	m.processed++
	m.cycles += e.at - w.began - w.waited
	m.waited += w.waited
	w.pc, w.waited = 0, 0
	m.take(w, e.worker, e.at)
	if w.over() {
		w.stage = after
	}
}

// issue runs the instructions of the next step and starts its access.
func (m *machine) issue(w *worker, e event) {
	steps := m.edge
	if w.stage == inLoop {
		steps = m.loop
	}
	s := steps[w.pc]
	w.pc++
	if s.kind == poll {
		w.began = e.at
	}
	if s.kind == copied {
		// The DMA serves all cores, so the worker requests it in order of time.
		w.copying = true
		m.ready.push(e)
		return
	}
	c := &m.cores[w.core]
	c.slot = max(c.slot, e.at) + s.instr
	c.issued += s.instr
	start := max(c.slot, c.port)
	c.port = start + m.cfg.Port
	m.ready.push(event{start + s.latency, e.worker})
}

// copy waits until the DMA is free and has read the chunk out of staging.
func (m *machine) copy(w *worker, e event) {
	done := max(m.dma, e.at) + m.copying
	m.dma = done
	w.waited = done - e.at
	m.ready.push(event{done, e.worker})
}

func (m *machine) result() *Result {
	c := m.cfg
	r := &Result{
		Transport: c.Transport, Threads: c.Threads, Cores: len(m.cores), Chunk: c.Chunk, Buffer: c.Buffer,
		Link: c.Link, Queue: c.Queue, Port: c.Port, Window: c.Sender.Window,
		Processed: m.processed, Dropped: m.dropped,
	}
	bytes := m.processed * c.Chunk
	if !m.short {
		bytes -= c.Chunk - m.last()
	}
	var issued int64
	for i := range m.cores {
		issued += m.cores[i].issued
	}
	for i := range m.workers {
		r.Arrived += m.workers[i].arrived
	}
	seconds := float64(m.end) / ClockHz
	slots := float64(m.end) * float64(len(m.cores))
	r.TimeUS = seconds * 1e6
	r.Throughput = float64(bytes) / seconds / (1 << 30)
	r.LinkShare = float64(bytes) * 8 / seconds / c.Link
	r.ChunkRate = float64(m.processed) / seconds
	r.Issue = float64(issued) / slots
	r.Idle = float64(m.idle) / slots
	r.DropShare = float64(m.dropped) / float64(r.Arrived)
	if m.processed > 0 {
		r.Cycles = float64(m.cycles) / float64(m.processed)
		r.Wait = float64(m.waited) / float64(m.processed)
	}
	return r
}

// Run executes one experiment.
func Run(cfg Config) (*Result, error) {
	cfg.Queue = cmp.Or(cfg.Queue, QueueDepth)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return cfg.run(), nil
}

// run executes a valid experiment.
func (c Config) run() *Result { return newMachine(c).run().result() }
