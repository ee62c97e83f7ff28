package dpa

import (
	"math"
	"time"
)

// Sender is the program that sends the chunks, one connection per worker. The zero value always has chunks to send on
// all connections.
type Sender struct {
	Window int           // chunks that it posts per connection at a time, when all earlier ones are acknowledged
	Post   time.Duration // per chunk, of the thread that posts
	Ack    time.Duration // from the end of a window on the link to the start of posting the next one
	Burst  int           // chunks of a connection in a row on the link; 0 means 1
}

// BenchmarkSender is the sender of the authors' published benchmark. Window and the threads that post are its own;
// the times are our assumptions.
var BenchmarkSender = Sender{Window: 128, Post: 40 * time.Nanosecond, Ack: 3 * time.Microsecond}

// posters is the number of the sender's threads that post, as in the authors' benchmark.
func posters(connections int) int {
	switch {
	case connections <= 8:
		return 1
	case connections <= 16:
		return 2
	}
	return 4
}

func (s Sender) check(bad func(string, ...any) error) error {
	const limit = time.Second
	switch {
	case s.Window < 0 || s.Window > MaxChunks:
		return bad("a window of %d chunks: want 0 to %d", s.Window, MaxChunks)
	case s.Post < 0 || s.Post > limit:
		return bad("%v per posted chunk: want 0 to %v", s.Post, limit)
	case s.Ack < 0 || s.Ack > limit:
		return bad("%v to acknowledge a window: want 0 to %v", s.Ack, limit)
	case s.Burst < 0 || s.Burst > MaxChunks:
		return bad("bursts of %d chunks: want 0 to %d", s.Burst, MaxChunks)
	case s.Window == 0 && s != Sender{}:
		return bad("times and bursts of the sender need a window")
	}
	return nil
}

// block is the range of chunks that a worker receives from a sender with a window: one contiguous part of the buffer.
func (m *machine) block(worker int) (from, to int64) {
	n := int64(m.cfg.Threads)
	return m.chunks * int64(worker) / n, m.chunks * int64(worker+1) / n
}

// schedule computes when the chunks of each worker arrive from a sender with a window. The network card takes turns
// between the connections that have chunks to send. Receivers do not slow the sender down: cards acknowledge by
// themselves, and a window is smaller than the receive queue.
func (m *machine) schedule() [][]int64 {
	s := m.cfg.Sender
	post, ack := cycles(s.Post), cycles(s.Ack)
	burst := int64(max(1, s.Burst))
	connections := make([]struct{ left, posted int64 }, m.cfg.Threads)
	free := make([]int64, posters(m.cfg.Threads))
	arrivals := make([][]int64, m.cfg.Threads)
	var posts events
	next := func(i int, from int64) {
		c := &connections[i]
		n := min(c.left, int64(s.Window))
		if n == 0 {
			return
		}
		c.left -= n
		c.posted = n
		poster := &free[i*len(free)/len(connections)]
		*poster = max(*poster, from) + n*post // the card sees a window when all of it is posted
		posts.push(event{*poster, i})
	}
	for i := range connections {
		from, to := m.block(i)
		connections[i].left = to - from
		next(i, 0)
	}
	var turn []int // connections with posted chunks
	link := 0.0
	for len(turn) > 0 || len(posts) > 0 {
		for len(posts) > 0 && (len(turn) == 0 || float64(posts[len(posts)-1].at) <= link) {
			e := posts.pop()
			link = max(link, float64(e.at))
			turn = append(turn, e.worker)
		}
		i := turn[0]
		turn = turn[1:]
		c := &connections[i]
		from, _ := m.block(i)
		for range min(burst, c.posted) {
			link += m.wireTime(from + int64(len(arrivals[i])))
			arrivals[i] = append(arrivals[i], int64(math.Ceil(link)))
			c.posted--
		}
		if c.posted > 0 {
			turn = append(turn, i)
		} else {
			next(i, int64(math.Ceil(link))+ack)
		}
	}
	return arrivals
}

func cycles(d time.Duration) int64 { return int64(math.Round(d.Seconds() * ClockHz)) }

// Offered is the throughput, in GiB/s of payload, that a receiver without any cost would see.
func Offered(cfg Config) (float64, error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	return cfg.offered(), nil
}

func (c Config) offered() float64 {
	m := newMachine(c)
	end := int64(0)
	for w := range m.workers {
		for k := int64(0); ; k++ {
			at, _ := m.arrival(w, k)
			if at == never {
				break
			}
			end = max(end, at)
		}
	}
	return float64(c.Buffer) / (float64(end) / ClockHz) / (1 << 30)
}
