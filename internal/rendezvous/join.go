// Package rendezvous brings all ranks of a job together, at rank 0's address or through a store.
//
// [Join] connects every rank to rank 0, which checks that all of them mean the same job, and draws a seed
// for all. On the resulting [Session], [Session.Fold] gathers one small blob of every rank on rank 0, which makes
// one result of them for all: addresses, path MTUs, socket buffers. [Session.Exchange] gathers them on all ranks.
//
// The connections form a tree whose top is rank 0. If the ranks know rank 0's address, the tree is a star, so that
// rank 0 sees each rank come and go. The results of exchanges are long, and rank 0 does not send them to all ranks:
// they go down a second tree, with a small fan-out, and connections of their own (spread.go). If the ranks have a
// store, each rank listens, sets its address in the store, and gets the address of its parent in a tree with a small
// fan-out, which is used for everything. The store then handles two messages per rank. Either way no rank sends more
// than fan-out times all blobs. Traffic that needs speed uses a fabric.
//
// An address in the store can be that of a dead process: an earlier run, or a rank that was restarted. Each entry
// therefore names an incarnation, which the process at the address has to confirm. If it does not, the rank reads
// the entry again until a living process has replaced it.
//
// On the wire a connection begins with three messages of fixed size, by which both sides prove that they
// have the job's key (auth.go). Frames follow (wire.go):
//
//	child -> parent   hello                     the rank, and its view of the job
//	parent -> child   welcome | verdict         the seed, or why there is no job
//	child -> parent   blob                      once per exchange
//	parent -> child   result | verdict          the blobs of all ranks or what rank 0 made of them, or which rank failed
//	either way        leave                     an end that is not a crash
//	child -> parent   relay                     a frame of a rank below the child, or its arrival or loss
//
// In a star, ranks that pass results on, and those that get them from such a rank, use four more:
//
//	rank -> rank 0    offer                     after the hello: where the rank listens
//	rank 0 -> rank    welcome                   the seed, and the offer of the rank's parent in the tree of results
//	parent -> child   taken                     the answer to a hello: results will follow
//	rank -> rank 0    direct                    the rank cannot reach that parent, so rank 0 sends it the results
//
// Relayed frames go up to rank 0, which alone decides. All frames that go down are for all ranks, and each rank
// passes them on to its children. A verdict reaches every rank that came. Its text is the same on all of them,
// except below a rank that fails. Both sides drain the connection before they close it, because a reset must not
// overtake the verdict.
package rendezvous

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/allcast/allcast/internal/settings"
)

const (
	farewellTime  = 2 * time.Second // limit for the last frame to peers that may not read
	settleTime    = 250 * time.Millisecond
	handshakeTime = 10 * time.Second // from the connection to the hello
)

// Config describes a rank that joins. Its settings are those of settings.Resolve.
type Config struct {
	settings.Job
	settings.Meeting
	settings.Protection
	settings.Liveness
	Program string // name of the program, at most 255 bytes; ranks that name one must name the same

	// Local is the address at which this rank listens if there is a Store.
	Local netip.Addr

	// Listener is the socket of rank 0, if it is open already; Addr must lead to it. With a Store it is the socket
	// of this rank. Join closes it.
	Listener net.Listener

	// Logger gets warnings while ranks are missing.
	Logger *slog.Logger

	// LateNames says that the name of rank 0's machine may appear only while the job starts, as in Kubernetes. Otherwise
	// a name that does not exist ends Join.
	LateNames bool

	remind  *reminder        // when to warn; set by Join unless a test has set it
	meter   *meter           // set by Join
	tree    tree             // of the connections; Join replaces 0 by byEight, or without a store by star
	results tree             // by which results of exchanges reach all ranks; set by Join
	grace   time.Duration    // 0 for farewellTime
	expired <-chan time.Time // replaces the timer of a rank that waits for others
	offered func(*entry)     // may change the offer of this rank
	seen    func(rank int)   // called by rank 0 for every process that came, and by others for their children
}

// Join brings all ranks together. It returns when all of them have come. If they do not, every rank that
// came gets the same error. A world of one rank uses no network.
func Join(ctx context.Context, cfg Config) (*Session, error) {
	cfg.meter = new(meter)
	if cfg.grace == 0 {
		cfg.grace = farewellTime
	}
	if cfg.tree == 0 {
		cfg.tree = byEight
	}
	if cfg.results = cfg.tree; cfg.Store == nil {
		cfg.tree = star
	}
	err := context.Cause(ctx)
	if cfg.Listener != nil && (err != nil || cfg.Rank != 0 && cfg.Store == nil || cfg.Size == 1) {
		_ = cfg.Listener.Close()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.remind == nil {
		cfg.remind = newReminder()
		defer cfg.remind.stop()
	}
	if cfg.expired == nil {
		timer := time.NewTimer(cfg.JoinTimeout)
		defer timer.Stop()
		cfg.expired = timer.C
	}
	switch {
	case err != nil:
		return nil, err
	case cfg.Size == 1:
		h := newHub(cfg)
		cfg.Local = h.localAddr()
		return newSession(h, newSeed(), cfg), nil
	case cfg.Rank == 0:
		return joinRoot(ctx, cfg)
	}
	return joinBranch(ctx, cfg)
}

// keepAlive detects the loss of a peer's machine within about 15 s. The loss of a process shows at once,
// because its kernel closes the connection.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// writeUntil writes all of b, unless ctx ends first. It restores the connection's deadline.
func writeUntil(ctx context.Context, c net.Conn, b []byte) error {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		close(fired)
	})
	_, err := c.Write(b)
	if !stop() {
		<-fired
		_ = c.SetWriteDeadline(time.Time{})
	}
	return err
}

// reasonOf translates the end of a context for the other ranks.
func reasonOf(ctx context.Context) reason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return leftDeadline
	}
	return leftCanceled
}

// forPeople rounds a waiting time for a message.
func forPeople(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Millisecond)
}
