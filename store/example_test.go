package store_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/store"
)

// join joins three ranks, which are goroutines here and processes in a real job.
func join(s store.Store) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for rank := range 3 {
		wg.Go(func() {
			comm, err := allcast.Join(ctx, allcast.Options{Rank: rank, Size: 3, Store: s, NoCalibration: true})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer func() { _ = comm.Close() }()
			all := make([]byte, 3)
			if err := comm.Allgather(ctx, []byte{byte('a' + rank)}, all); err != nil {
				fmt.Println(err)
			} else if rank == 0 {
				fmt.Printf("%s\n", all)
			}
		})
	}
	wg.Wait()
}

// The ranks find each other in a directory that all machines mount.
func ExampleDir() {
	path, err := os.MkdirTemp("", "job")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(path) }()
	join(store.Dir(path))
	// Output: abc
}

// One machine runs the server, and all ranks use its address. Two jobs share the server.
func ExampleHTTP() {
	mux := http.NewServeMux()
	mux.Handle("/jobs/", store.NewServer("token"))
	server := httptest.NewServer(mux)
	defer server.Close()
	s := store.HTTP(server.URL+"/jobs", "token")
	join(store.Prefix(s, "training/"))
	join(store.Prefix(s, "evaluation/"))
	// Output:
	// abc
	// abc
}

// kv is a client of another store, such as etcd: a value is there or not, and changes can be watched.
type kv interface {
	Put(ctx context.Context, key, value string) error
	Lookup(ctx context.Context, key string) (value string, found bool, err error)
	Watch(ctx context.Context, key string) <-chan string
}

// adapter makes a Store of it. Get watches before it looks, so that it misses no change.
type adapter struct{ kv }

func (a adapter) Set(ctx context.Context, key string, value []byte) error {
	return a.Put(ctx, key, string(value))
}

func (a adapter) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := a.Watch(ctx, key)
	value, found, err := a.Lookup(ctx, key)
	if found || err != nil {
		return []byte(value), err
	}
	select {
	case value := <-changes:
		return []byte(value), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A client of etcd needs an adapter of two methods.
func ExampleStore() {
	var client kv // of etcd
	_ = allcast.Options{Rank: 0, Size: 8, Store: adapter{client}, Attempt: 1}
}
