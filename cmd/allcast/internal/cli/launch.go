package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/allcast/allcast/internal/launch"
	"github.com/allcast/allcast/internal/settings"
)

// Launch runs ranks until all have ended: on some hosts, or on this machine if hosts is nil. It passes on their output
// and forwards signals to them.
func (e *Env) Launch(cfg launch.Config, hosts *launch.Hosts) error {
	if err := CheckKey(); err != nil {
		return err
	}
	signals, stop := launch.Notify()
	defer stop()
	cfg.Stdout, cfg.Stderr, cfg.Signals = e.Stdout, e.Stderr, signals
	defer launch.Adopt()()
	var err error
	if hosts == nil {
		err = launch.Run(context.Background(), cfg)
	} else {
		err = launch.RunHosts(context.Background(), cfg, *hosts)
	}
	if start, ok := errors.AsType[*launch.StartError](err); ok {
		return Usagef("cannot start the program: %v", start.Err)
	}
	return RankFailure(err)
}

// CheckKey refuses a bad key in the environment, although ranks get a fresh one: the user would believe that the bad
// one protects the job.
func CheckKey() error {
	if _, err := settings.Key(settings.Process); err != nil {
		return Usagef("%v; unset it, as ranks get a fresh key", err)
	}
	return nil
}

// Hosts describes machines for launch.RunHosts. ssh is a command with options.
func Hosts(list []launch.Host, ssh string) (*launch.Hosts, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words := strings.Fields(ssh)
	if len(words) == 0 {
		return nil, Usagef("--ssh: want a command, such as \"ssh -p 2222\"")
	}
	// Agents cannot ask for a password, and a machine that dies must not keep the job waiting.
	words = append(words, "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10")
	return &launch.Hosts{List: list, SSH: words, Agent: []string{exe, "agent"}}, nil
}

// LaunchSelf runs this program again as local ranks. Rank 0 prints the results; the others print nothing on stdout.
func (e *Env) LaunchSelf(ranks int, args []string) error {
	cfg, err := e.self(ranks, args)
	if err != nil {
		return err
	}
	return e.Launch(cfg, nil)
}

// LaunchSelfQuietly is LaunchSelf for ranks that do not handle signals. When the user interrupts the command, it ends
// all ranks, and hides what they say about each other's end.
func (e *Env) LaunchSelfQuietly(ranks int, args []string) error {
	cfg, err := e.self(ranks, args)
	if err != nil {
		return err
	}
	ctx, stop := UntilSignal()
	defer stop()
	defer launch.Adopt()()
	cfg.Stdout, cfg.Stderr = e.Stdout, untilDone{ctx, e.Stderr}
	failed := cfg.Failed
	cfg.Failed = func(failure *launch.RankError) {
		if ctx.Err() == nil {
			failed(failure)
		}
	}
	err = launch.Run(ctx, cfg)
	if status := Interrupted(ctx); status != nil {
		e.Message("interrupted")
		return status
	}
	return RankFailure(err)
}

// untilDone writes until a context ends, and then discards.
type untilDone struct {
	ctx context.Context
	out io.Writer
}

func (w untilDone) Write(b []byte) (int, error) {
	select {
	case <-w.ctx.Done():
		return len(b), nil
	default:
	}
	return w.out.Write(b)
}

// self describes local ranks of this program.
func (e *Env) self(ranks int, args []string) (launch.Config, error) {
	if err := CheckKey(); err != nil {
		return launch.Config{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return launch.Config{}, fmt.Errorf("finding the path of this program: %w", err)
	}
	return launch.Config{
		Ranks: ranks, Command: append([]string{exe}, args...),
		Prefix: func(rank int, stderr bool) string {
			if rank == 0 && !stderr {
				return ""
			}
			return fmt.Sprintf("[%d] ", rank)
		},
		Failed: func(failure *launch.RankError) {
			// A rank that exited has already printed the reason; one that a signal ended has not.
			if failure.Code < 0 {
				e.Message("%v", failure)
			}
		},
	}, nil
}

// RankFailure replaces the failure of a rank, which is already known to the user, by its exit status.
func RankFailure(err error) error {
	if rank, ok := errors.AsType[*launch.RankError](err); ok {
		return StatusError(max(rank.Code, StatusFailed)) // the code is -1 if a signal ended the rank
	}
	return err
}

// Program removes the "--" in front of a command line.
func Program(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}
