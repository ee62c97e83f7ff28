// Package store has key-value stores through which the ranks of a job find each other (allcast.Options.Store), for
// jobs that do not know an address of rank 0 in advance.
//
// [Dir] keeps values in a directory that all machines mount. [HTTP] talks to a server that runs [NewServer]. Both
// are complete, and short enough to serve as examples: a store on top of etcd, Redis or the store that PyTorch
// passes to a backend needs only the two methods of [Store].
package store

import "context"

// A Store is a key-value store that all ranks of a job can reach. Its methods may be called concurrently.
//
// Each rank sets one small value, its address, and gets the value of one other rank. A store thus handles two
// calls per rank, and more only if it holds values of processes that have ended. Joining detects such values and
// gets the key again until the value changes, so nobody has to delete them.
//
// Keys begin with "allcast/" and the attempt, and consist of lower-case letters, digits and slashes. If several
// jobs use a store at the same time, each needs a [Prefix] of its own.
//
// If the job has a key (allcast.Options.Key), the store need not be trusted: ranks prove to each other that they
// have the key. Without one, a process that can write to the store can join the job.
type Store interface {
	// Set makes value the value of the key, in place of an earlier one.
	Set(ctx context.Context, key string, value []byte) error

	// Get returns the latest value of the key. If there is none, Get waits for one until ctx ends. After another
	// error the caller may try again.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Prefix returns a part of s whose keys begin with prefix, such as "training-17/". Jobs with different prefixes
// share s without meeting.
func Prefix(s Store, prefix string) Store { return prefixed{s, prefix} }

type prefixed struct {
	Store
	prefix string
}

func (p prefixed) Set(ctx context.Context, key string, value []byte) error {
	return p.Store.Set(ctx, p.prefix+key, value)
}

func (p prefixed) Get(ctx context.Context, key string) ([]byte, error) {
	return p.Store.Get(ctx, p.prefix+key)
}
