package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// matrix has a value for each pair of ranks: what rank To noticed of rank From is at [To][From].
type matrix[T any] [][]T

// pair is a direction of the network.
type pair struct{ From, To int }

// others calls f for each active rank but this one.
func (u *checkup) others(f func(rank int)) {
	for r := range u.cards {
		if r != u.rank && u.cards[r].active() && u.active() {
			f(r)
		}
	}
}

func (u *checkup) active() bool { return u.cards[u.rank].active() }

// round lets all ranks send at a time, and returns how many datagrams each has heard of each.
func (u *checkup) round(ctx context.Context, send func(phase uint32)) (matrix[int], error) {
	u.phase++
	if u.active() {
		send(u.phase)
	}
	if _, err := swap(ctx, u.session, 0); err != nil { // all have sent
		return nil, err
	}
	heard := make([]int, len(u.cards))
	if u.active() {
		var want []int
		u.others(func(r int) { want = append(want, r) })
		u.probe.wait(ctx, u.phase, want, 1)
		for r := range heard {
			heard[r] = u.probe.tally(u.phase, r).count
		}
	}
	return swap(ctx, u.session, heard)
}

// reach checks whether multicast and unicast datagrams arrive in all directions.
func (u *checkup) reach(ctx context.Context, r *report) (err error) {
	if r.Multicast, err = u.round(ctx, func(phase uint32) { u.multicast(phase, smallSize, copies) }); err != nil {
		return err
	}
	r.UDP, err = u.round(ctx, func(phase uint32) { u.unicast(phase, smallSize, copies) })
	return err
}

func (u *checkup) multicast(phase uint32, size, n int) {
	for i := range n {
		u.probe.send(u.probe.group, phase, uint32(i), size)
	}
}

func (u *checkup) unicast(phase uint32, size, n int) {
	u.others(func(r int) {
		for i := range n {
			u.probe.send(u.cards[r].Addr, phase, uint32(i), size)
		}
	})
}

// connect checks whether TCP connections work in all directions.
func (u *checkup) connect(ctx context.Context, r *report) (err error) {
	failed := make([]string, len(u.cards)) // by rank that did not accept
	results := make(chan struct {
		rank int
		err  error
	})
	n := 0
	u.others(func(rank int) {
		n++
		go func() {
			addr := netip.AddrPortFrom(u.cards[rank].Addr.Addr(), uint16(u.cards[rank].TCP))
			d := net.Dialer{Timeout: 3 * time.Second}
			conn, err := d.DialContext(ctx, "tcp", addr.String())
			if err == nil {
				_ = conn.Close()
			}
			results <- struct {
				rank int
				err  error
			}{rank, err}
		}()
	})
	for range n {
		if res := <-results; res.err != nil {
			failed[res.rank] = res.err.Error()
		}
	}
	r.TCP, err = swap(ctx, u.session, failed)
	return err
}

// sizes finds the largest datagrams that arrive in all directions in which small ones do.
func (u *checkup) sizes(ctx context.Context, r *report) (err error) {
	for i := range u.cards {
		if c := &u.cards[i]; c.active() && (r.MaxSize == 0 || c.MTU-overhead < r.MaxSize) {
			r.MaxSize = min(c.MTU, 65535) - overhead
		}
	}
	if r.Size, r.SizeCut, err = u.largest(ctx, r.MaxSize, r.Multicast, u.multicast); err != nil {
		return err
	}
	r.Path, r.PathCut, err = u.largest(ctx, r.MaxSize, r.UDP, u.unicast)
	return err
}

// largest finds the largest size, and the directions in which a larger one does not arrive.
func (u *checkup) largest(ctx context.Context, limit int, small matrix[int], send func(uint32, int, int)) (
	size int, cut []pair, err error,
) {
	if len(u.pairs(small, func(n int) bool { return n > 0 })) == 0 {
		return 0, nil, nil
	}
	low, high, try := smallSize, limit+1, limit
	for high-low > 1 && try > low {
		heard, err := u.round(ctx, func(phase uint32) { send(phase, try, 5) })
		if err != nil {
			return 0, nil, err
		}
		missing := u.pairs(heard, func(n int) bool { return n == 0 })
		lost := missing[:0]
		for _, p := range missing {
			if small[p.To][p.From] > 0 {
				lost = append(lost, p)
			}
		}
		if len(lost) == 0 {
			low = try
		} else {
			high, cut = try, lost
		}
		try = (low + high) / 2
		for _, common := range []int{1500 - overhead, 1500 - overhead + 1} { // Ethernet's usual MTU is the likeliest limit
			if common > low && common < high {
				try = common
				break
			}
		}
	}
	return low, cut, nil
}

// pairs lists the directions between active ranks whose value matches.
func (u *checkup) pairs(m matrix[int], match func(int) bool) []pair {
	return pairsOf(u.cards, m, match)
}

// pairsOf lists the directions between active machines whose value matches.
func pairsOf[T any](cards []card, m matrix[T], match func(T) bool) (list []pair) {
	for from := range cards {
		for to := range cards {
			if from != to && cards[from].active() && cards[to].active() && match(m[to][from]) {
				list = append(list, pair{from, to})
			}
		}
	}
	return list
}

// arrival is what one rank has noticed of the datagrams that another has sent at a rate.
type arrival struct{ Sent, Got, Reordered, Dropped int }

// loss lets one rank after the other send at a rate.
func (u *checkup) loss(ctx context.Context, r *report) (err error) {
	const duration = 250 * time.Millisecond
	mine := make([]arrival, len(u.cards))
	size := max(smallSize, min(r.Size, 1500-overhead))
	n := min(max(int(float64(r.Rate)*duration.Seconds()/8)/(size+overhead), 200), 20000)
	for from := range u.cards {
		u.phase++
		if !u.cards[from].active() {
			continue
		}
		dropped := 0
		if u.active() {
			dropped = u.probe.drops()
			u.probe.expect(u.phase, n)
		}
		if _, err := swap(ctx, u.session, 0); err != nil { // all listen
			return err
		}
		if from == u.rank {
			u.probe.pace(ctx, u.phase, n, size, float64(r.Rate))
		}
		if _, err := swap(ctx, u.session, 0); err != nil {
			return err
		}
		if from != u.rank && u.active() && r.Multicast[u.rank][from] > 0 {
			u.probe.wait(ctx, u.phase, []int{from}, n)
			t := u.probe.tally(u.phase, from)
			mine[from] = arrival{n, t.count, t.reordered, u.probe.drops() - dropped}
		}
	}
	r.Loss, err = swap(ctx, u.session, mine)
	return err
}

// Rounds of watch: the number of them, and how many in a row a direction may be silent.
const (
	watchRounds = 32
	maxSilent   = 3
)

// watch checks whether multicast keeps arriving.
func (u *checkup) watch(ctx context.Context, e *cli.Env, r *report) error {
	if !u.Long {
		return nil
	}
	interval := u.LongFor / watchRounds
	silent := map[pair]int{}
	r.Watched = u.LongFor
	for i := range watchRounds {
		heard, err := u.round(ctx, func(phase uint32) { u.multicast(phase, smallSize, 5) })
		if err != nil {
			return err
		}
		if i == 0 && u.rank == 0 {
			e.Message("watching for %v whether multicast keeps arriving", u.LongFor)
		}
		for _, p := range u.pairs(r.Multicast, func(n int) bool { return n > 0 }) {
			if silent[p]++; heard[p.To][p.From] > 0 {
				silent[p] = 0
			}
			if silent[p] == maxSilent {
				r.Stopped = append(r.Stopped, p)
			}
		}
		if r.Stopped != nil {
			r.StoppedAfter = max(0, time.Duration(i+1-maxSilent)*interval)
			return nil
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
	return nil
}

// queriers collects the routers and switches whose IGMP queries arrived during the checks.
func (u *checkup) queriers(ctx context.Context, r *report) (err error) {
	mine := query{Unknown: true}
	if u.active() {
		mine = u.probe.query()
	}
	r.Queries, err = swap(ctx, u.session, mine)
	return err
}
