package calltest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
)

// Tags of sendRecv.
const (
	tagSmall = iota
	tagLarge
	tagNone // no rank sends with this tag
)

// eager is a size at which the data of a message follows at once.
const eager = 1000

// sendRecv passes a small message and one of n bytes to the right. Meanwhile a Recv has no match: it must be
// withdrawn if all goes well, and otherwise fail for the same reason as the exchange.
func sendRecv(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	if c.Size() == 1 {
		return nil
	}
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	withdrawn, withdraw := context.WithCancel(ctx)
	defer withdraw()
	unmatched := make(chan error, 1)
	go func() {
		_, err := c.Recv(withdrawn, make([]byte, 1), left, tagNone)
		unmatched <- err
	}()
	err := errors.Join(
		pass(ctx, c, mk(min(n, eager)), right, left, tagSmall, seed, algo),
		pass(ctx, c, mk(n), right, left, tagLarge, seed, algo),
	)
	var failed, also *allcast.RankError
	if !errors.As(err, &failed) {
		withdraw()
	}
	switch end := <-unmatched; {
	case failed == nil && errors.As(end, &also) && !errors.Is(end, context.Canceled):
		return end // the communicator broke after the exchange
	case failed == nil && (!errors.Is(end, context.Canceled) || errors.Is(end, allcast.ErrAborted)):
		return errors.New("a receive that was withdrawn: " + fmt.Sprint(end)) // not a RankError
	case failed != nil && (!errors.As(end, &also) || also.WorldRank != failed.WorldRank):
		return errors.New("a pending receive ended with " + fmt.Sprint(end) + ", want " + failed.Error())
	}
	return err
}

// pass sends a message to one rank and receives one into buf from another.
func pass(ctx context.Context, c *allcast.Comm, buf []byte, to, from, tag int, seed uint64, algo string) error {
	r, err := c.StartRecv(buf, from, tag)
	if err != nil {
		return err
	}
	err = errors.Join(c.Send(ctx, Pattern(seed, c.Rank(), len(buf)), to, tag), Wait(ctx, r, nil, algo))
	if want := (allcast.Message{Source: from, Tag: tag, Bytes: len(buf)}); err == nil && r.Message() != want {
		return fmt.Errorf("received %+v, want %+v", r.Message(), want)
	}
	return Equal(err, buf, Pattern(seed, from, len(buf)))
}

// coalesced broadcasts and gathers three buffers at once; the first one is empty.
func coalesced(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	var bufs, sends, recvs [][]byte
	for _, n := range []int{0, n / 3, n - n/3} {
		buf := mk(n)
		if c.Rank() == root {
			copy(buf, Pattern(seed, root, n))
		}
		bufs = append(bufs, buf)
		sends = append(sends, Pattern(seed, c.Rank(), n))
		recvs = append(recvs, make([]byte, n*c.Size()))
	}
	r, err := c.StartBroadcastCoalesced(bufs, root, allcast.WithAlgorithm(algo))
	if err := Wait(ctx, r, err, algo); err != nil {
		return err
	}
	r, err = c.StartAllgatherCoalesced(sends, recvs, allcast.WithAlgorithm(algo))
	if err := Wait(ctx, r, err, algo); err != nil {
		return err
	}
	for i, buf := range bufs {
		err = errors.Join(err, Equal(nil, buf, Pattern(seed, root, len(buf))),
			Equal(nil, recvs[i], Gathered(seed, c.Size(), len(sends[i]))))
	}
	return err
}

// subset makes a communicator of all ranks but one, in another order, and gathers on it. The rank that is left
// out does nothing.
func subset(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	var members []int
	for i := range c.Size() {
		members = append(members, (int(seed)+i)%c.Size())
	}
	if c.Size() > 1 {
		members = members[:c.Size()-1]
	}
	if !slices.Contains(members, c.Rank()) {
		return nil
	}
	sub, err := c.Subset(ctx, members, "calltest")
	if err != nil {
		return err
	}
	return errors.Join(allgather(ctx, sub, mk, seed, n, algo), sub.Close())
}
