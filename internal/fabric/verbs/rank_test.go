//go:build verbs

package verbs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

// asRank runs a rank process.
func asRank(mode string) error {
	if mode == "cm" {
		return throughCM()
	}
	c, err := allcast.Join(context.Background(), allcast.Options{Subgroups: 2, NoCalibration: true})
	if err != nil {
		return err
	}
	var n int
	switch mode {
	case "matrix":
		n, err = matrix(c)
	case "large":
		n, err = large(c)
	case "idle":
		err = idle(c)
	case "links":
		n, err = links(c)
	case "split":
		n, err = split(c)
	case "deaf":
		n, err = deaf(c)
	case "shrink":
		n, err = shrink(c)
	case "endless":
		return endless(c)
	default:
		return fmt.Errorf("unknown mode %q", mode)
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	s := c.Stats()
	b, err := json.Marshal(&verdict{
		Rank: c.Rank(), Calls: n, Fabric: c.Fabric(), Received: s.ReceivedChunks, Repaired: s.RepairedChunks,
		RepairedBytes: s.RepairedBytes, Reads: s.DirectReads, Foreign: s.ForeignChunks,
		Peers: slices.Sorted(maps.Keys(s.Peers)),
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, string(b))
	return c.Close()
}

// verdict is the result that a rank prints at the end.
type verdict struct {
	Rank, Calls            int
	Fabric                 string
	Received, Repaired     uint64
	Reads                  uint64
	RepairedBytes, Foreign uint64
	Peers                  []int // to which there is a connection
}

// chunk is the payload of a datagram without the header.
const chunk = 4096 - 12

// sizes are around the payload of one datagram, and around the device's MTU.
var sizes = []int{0, 1, chunk - 1, chunk, chunk + 1, 4095, 4096, 4097, 1<<20 + 13}

// matrix makes a call for every combination of size, subgroups and chains, and compares every byte.
func matrix(c *allcast.Comm) (calls int, err error) {
	if ok, why := c.Multicast(); !ok {
		return 0, fmt.Errorf("no multicast: %s", why)
	}
	for _, n := range sizes {
		for _, subs := range []int{1, 2} {
			for _, chains := range []int{1, 2} {
				for _, op := range []string{"broadcast", "allgather"} {
					calls++
					if err := one(c, op, n, subs, chains, calls); err != nil {
						return calls, fmt.Errorf("%s of %d bytes, %d subgroups, %d chains: %w", op, n, subs, chains, err)
					}
				}
			}
		}
	}
	return calls, nil
}

// large makes calls of many chunks, from memory of Alloc and other memory.
func large(c *allcast.Comm) (calls int, err error) {
	if ok, why := c.Multicast(); !ok {
		return 0, fmt.Errorf("no multicast: %s", why)
	}
	for _, subs := range []int{1, 2} {
		for _, op := range []string{"broadcast", "allgather"} {
			calls++
			if err := one(c, op, 1<<20+13, subs, 2, calls); err != nil {
				return calls, fmt.Errorf("%s, %d subgroups: %w", op, subs, err)
			}
		}
	}
	n := 300_001
	b, err := c.Alloc(n)
	if err != nil {
		return calls, err
	}
	for range 3 {
		calls++
		want := content(n, calls, 0)
		if c.Rank() == 0 {
			copy(b, want)
		}
		if err := c.Broadcast(context.Background(), b, 0, allcast.WithAlgorithm("mcast")); err != nil {
			return calls, err
		}
		if !bytes.Equal(b, want) {
			return calls, errors.New("wrong data in memory of Alloc")
		}
	}
	return calls, c.Free(b)
}

// links gathers by a ring and by multicast.
func links(c *allcast.Comm) (calls int, err error) {
	for _, algo := range []string{"ring", "mcast"} {
		calls++
		got := make([]byte, 5000*c.Size())
		mine := content(5000, calls, c.Rank())
		if err := c.Allgather(context.Background(), mine, got, allcast.WithAlgorithm(algo)); err != nil {
			return calls, err
		}
		for r := range c.Size() {
			if !bytes.Equal(got[5000*r:][:5000], content(5000, calls, r)) {
				return calls, fmt.Errorf("wrong data of rank %d", r)
			}
		}
	}
	return calls, nil
}

// idle does nothing for a while, and fails if the process takes processor time.
func idle(c *allcast.Comm) error {
	const while = 2 * time.Second
	used := func() (time.Duration, error) {
		var u unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
	}
	if err := c.Barrier(context.Background()); err != nil {
		return err
	}
	before, err := used()
	if err != nil {
		return err
	}
	time.Sleep(while)
	after, err := used()
	if err != nil {
		return err
	}
	if after-before > while/4 {
		return fmt.Errorf("%v of processor time in %v of idling", after-before, while)
	}
	return c.Barrier(context.Background())
}

// split makes calls on both halves of the ranks at the same time, and then on all ranks.
func split(c *allcast.Comm) (calls int, err error) {
	for range 2 {
		half, err := c.Split(context.Background(), c.Rank()%2, c.Rank())
		if err != nil {
			return calls, err
		}
		for _, comm := range []*allcast.Comm{half, half, c} {
			for _, op := range []string{"broadcast", "allgather"} {
				calls++
				if err := one(comm, op, 50_000, 2, 2, calls); err != nil {
					return calls, fmt.Errorf("%s among %d: %w", op, comm.Size(), err)
				}
			}
		}
		if err := half.Close(); err != nil {
			return calls, err
		}
	}
	return calls, nil
}

// deafen makes a rank receive nothing from groups that it joins later.
func deafen(c *allcast.Comm, rank int) {
	if c.Rank() == rank {
		verbs.DoNotAttach(func(netip.Addr) bool { return true })
	}
}

// both makes calls on a communicator, by multicast.
func both(c *allcast.Comm, calls *int) error {
	for _, op := range []string{"broadcast", "allgather"} {
		*calls++
		if err := one(c, op, 200_000, 2, 2, *calls); err != nil {
			return fmt.Errorf("%s among %d: %w", op, c.Size(), err)
		}
	}
	return nil
}

// deaf splits and duplicates a communicator, with a rank that does not hear the new groups.
func deaf(c *allcast.Comm) (calls int, err error) {
	deafen(c, 1)
	begin := time.Now()
	half, err := c.Split(context.Background(), c.Rank()/2, 0)
	if err != nil {
		return calls, err
	}
	dup, err := c.Dup(context.Background())
	if err != nil {
		return calls, err
	}
	took := time.Since(begin)
	for _, comm := range []*allcast.Comm{half, dup, c} {
		if err := both(comm, &calls); err != nil {
			return calls, err
		}
	}
	if took > 30*time.Second {
		return calls, fmt.Errorf("it took %v", took)
	}
	return calls, errors.Join(half.Close(), dup.Close())
}

// shrink continues without a rank that ends, and with another rank that does not hear the new group.
func shrink(c *allcast.Comm) (calls int, err error) {
	const ends = 3
	if err := c.Barrier(context.Background()); err != nil {
		return calls, err
	}
	if c.Rank() == ends {
		os.Exit(0)
	}
	for err == nil {
		err = c.Barrier(context.Background())
	}
	var rank *allcast.RankError
	if !errors.As(err, &rank) || rank.Rank != ends {
		return calls, err
	}
	deafen(c, 1)
	rest, err := c.Shrink(context.Background())
	if err != nil {
		return calls, err
	}
	if rest.Size() != c.Size()-1 {
		return calls, fmt.Errorf("%d ranks are left", rest.Size())
	}
	return calls, errors.Join(both(rest, &calls), rest.Close())
}

// endless makes calls until one fails, prints the error, and ends without a goodbye.
func endless(c *allcast.Comm) error {
	b := make([]byte, 100_000)
	for i := 0; ; i++ {
		if i == 3 {
			_, _ = fmt.Fprintln(os.Stdout, "under way")
		}
		err := c.Broadcast(context.Background(), b, i%c.Size(), allcast.WithAlgorithm("mcast"))
		var rank *allcast.RankError
		switch {
		case err == nil:
			continue
		case errors.As(err, &rank):
			_, _ = fmt.Fprintf(os.Stdout, "rank %d: %v\n", rank.Rank, err)
			return c.Close()
		}
		return err
	}
}

// content is the data that a rank contributes to a call.
func content(n, call, rank int) []byte {
	b := make([]byte, n+7)
	x := uint64(call*7919 + rank*104729 + 1)
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x^x>>32)
	}
	return b[:n]
}

func one(c *allcast.Comm, op string, n, subs, chains, call int) error {
	opts := []allcast.CallOption{allcast.WithAlgorithm("mcast"), allcast.WithSubgroups(subs), allcast.WithChains(chains)}
	ctx := context.Background()
	var got, want []byte
	var r *allcast.Request
	var err error
	if op == "broadcast" {
		root := call % c.Size()
		want = content(n, call, root)
		got = make([]byte, n+1)[1:] // not aligned
		if c.Rank() == root {
			copy(got, want)
		}
		r, err = c.StartBroadcast(got, root, opts...)
	} else {
		want = make([]byte, 0, n*c.Size())
		for rank := range c.Size() {
			want = append(want, content(n, call, rank)...)
		}
		got = make([]byte, n*c.Size())
		r, err = c.StartAllgather(content(n, call, c.Rank()), got, opts...)
	}
	if err != nil {
		return err
	}
	if err := r.Wait(ctx); err != nil {
		return err
	}
	if i := r.Info(); i.Algorithm != "mcast" || n > 0 && i.Chunk != chunk {
		return fmt.Errorf("%s with chunks of %d bytes ran", i.Algorithm, i.Chunk)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("wrong data")
	}
	return nil
}

// parse reads the verdict of a rank.
func parse(out string) (v verdict, err error) {
	out = strings.TrimSpace(out)
	if i := strings.LastIndexByte(out, '\n'); i >= 0 {
		out = out[i+1:]
	}
	return v, json.Unmarshal([]byte(out), &v)
}
