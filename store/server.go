package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
)

// maxBytes limits the keys and values of a Server.
const maxBytes = 64 << 20

// A Server is a store in memory. It is a Store for the ranks in its own process, and an http.Handler for those of
// other processes, which use HTTP.
//
//	PUT /prefix/KEY    sets a value: 204
//	GET /prefix/KEY    returns the value: 200; waits for it, and after some time: 404
//
// KEY is the last element of the path, in URL-safe base64 without padding, so that no proxy takes it apart. A
// request without the right token is answered with 401.
type Server struct {
	token [sha256.Size]byte
	open  bool // no token is needed

	mu      sync.Mutex
	values  map[string][]byte
	size    int // bytes of keys and values
	waiting map[string]*waiters
}

// waiters are the calls of Get that wait for a key.
type waiters struct {
	set chan struct{} // closed by Set
	n   int
}

// NewServer returns an empty store. An empty token lets every client in.
func NewServer(token string) *Server {
	return &Server{
		token: sha256.Sum256([]byte(token)), open: token == "",
		values: map[string][]byte{}, waiting: map[string]*waiters{},
	}
}

var (
	errTooLarge = errors.New("store: the value is too large")
	errFull     = errors.New("store: the store is full")
)

// Set implements Store.
func (s *Server) Set(_ context.Context, key string, value []byte) error {
	if len(value) > MaxValue {
		return errTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.size + len(value)
	if old, there := s.values[key]; there {
		size -= len(old)
	} else {
		size += len(key)
	}
	if size > maxBytes {
		return errFull
	}
	s.size = size
	s.values[key] = bytes.Clone(value)
	if w := s.waiting[key]; w != nil {
		close(w.set)
		delete(s.waiting, key)
	}
	return nil
}

// Get implements Store.
func (s *Server) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, there := s.values[key]; there {
		return bytes.Clone(value), nil
	}
	w := s.waiting[key]
	if w == nil {
		w = &waiters{set: make(chan struct{})}
		s.waiting[key] = w
	}
	w.n++
	s.mu.Unlock()
	select {
	case <-w.set:
		s.mu.Lock()
		return bytes.Clone(s.values[key]), nil
	case <-ctx.Done():
		s.mu.Lock()
		if w.n--; w.n == 0 && s.waiting[key] == w {
			delete(s.waiting, key)
		}
		return nil, context.Cause(ctx)
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(r) {
		http.Error(w, "wrong or missing token", http.StatusUnauthorized)
		return
	}
	key, err := base64.RawURLEncoding.DecodeString(path.Base(r.URL.Path))
	if err != nil {
		http.Error(w, "bad key", http.StatusBadRequest)
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.put(w, r, string(key))
	case http.MethodGet:
		ctx, cancel := context.WithTimeout(r.Context(), waitTime)
		defer cancel()
		value, err := s.Get(ctx, string(key))
		if err != nil {
			http.Error(w, "no value yet", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "no-store") // another value may follow
		_, _ = w.Write(value)
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "want GET or PUT", http.StatusMethodNotAllowed)
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string) {
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxValue))
	if err == nil {
		err = s.Set(r.Context(), key, value)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &tooLarge):
		http.Error(w, "the value is too large", http.StatusRequestEntityTooLarge)
	case errors.Is(err, errFull):
		http.Error(w, "the store is full", http.StatusInsufficientStorage)
	default:
		http.Error(w, "cannot read the value", http.StatusBadRequest)
	}
}

// allowed compares hashes, so that the time tells nothing about the token.
func (s *Server) allowed(r *http.Request) bool {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(token))
	return s.open || found && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}
