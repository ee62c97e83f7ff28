package rendezvous

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// maxStoreErrors limits consecutive errors of a store, to about three seconds. Fewer count as transient. More are a
// reason to fail, because the user should not wait for the join timeout to read that a password is wrong.
const maxStoreErrors = 12

// entry is a rank's value in the store.
type entry struct {
	addr netip.AddrPort
	id   incarnation
}

// entryJSON is readable, because people look into stores to find out why a job does not start.
type entryJSON struct {
	Addr        string `json:"addr"`
	Incarnation string `json:"incarnation"`
}

func newEntry(addr netip.AddrPort) entry {
	e := entry{addr: addr}
	_, _ = rand.Read(e.id[:]) // a failure would end the process
	return e
}

func (e entry) encode() ([]byte, error) {
	return json.Marshal(entryJSON{e.addr.String(), hex.EncodeToString(e.id[:])})
}

func decodeEntry(b []byte) (e entry, err error) {
	var j entryJSON
	if err = json.Unmarshal(b, &j); err == nil {
		e.addr, err = netip.ParseAddrPort(j.Addr)
	}
	id, badID := hex.DecodeString(j.Incarnation)
	if err != nil || badID != nil || len(id) != len(e.id) || !e.addr.IsValid() || e.addr.Port() == 0 {
		return entry{}, fmt.Errorf("%w: %.100q in the store is not a rank's entry", ErrProtocol, b)
	}
	e.id = incarnation(id)
	if e.id == (incarnation{}) {
		return entry{}, fmt.Errorf("%w: an entry in the store without incarnation", ErrProtocol)
	}
	return e, nil
}

// storeKey is the key of a rank's entry. Each attempt has keys of its own, because restarts use the store again.
func storeKey(attempt, rank int) string { return fmt.Sprintf("allcast/%d/rank/%d", attempt, rank) }

// publish writes this rank's entry.
func publish(ctx context.Context, cfg *Config, e entry) error {
	value, err := e.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTimeout)
	defer cancel()
	key := storeKey(cfg.Attempt, cfg.Rank)
	wait := firstWait
	for range maxStoreErrors {
		if err = cfg.Store.Set(ctx, key, value); err == nil {
			return nil
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, longWait)
		case <-ctx.Done():
			return fmt.Errorf("rendezvous: rank %d cannot set %q in the store: %w (last: %w)",
				cfg.Rank, key, context.Cause(ctx), err)
		}
	}
	return fmt.Errorf("rendezvous: rank %d cannot set %q in the store: %w", cfg.Rank, key, err)
}
