//go:build unix

package launch

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// An agent and its launcher exchange lines. The agent begins with a line that has the prefix greeting and an agentHello
// in JSON; anything before it, such as output of a login script, is ignored. The launcher answers with an agentJob
// in JSON. Each further line begins with one of these letters and a space.
const (
	greeting = "allcast-agent "

	// From the agent. All but lineDone have a rank next.
	lineOut    = 'o' // a line of standard output
	lineErr    = 'e' // a line of standard error
	lineFailed = 'f' // a failure: exit status and signal
	lineDone   = 'd' // the last line: "ok", "failed" if lineFailed has said why, or why they could not run

	// To the agent.
	lineSignal = 's' // forward a signal, by its number
	lineEnd    = 't' // end all ranks
	lineBeat   = 'b' // the launcher lives
)

// An agent ends its ranks if it hears nothing of the launcher for beatLimit: a machine that is cut off or loses power
// does not close its connections. A launcher that the user has stopped says so.
const (
	beatInterval = 10 * time.Second
	beatLimit    = 60 * time.Second
)

const (
	doneOK     = "ok"
	doneFailed = "failed"
	doneStart  = "start: " // the program could not be started
)

// agentProtocol changes with these messages.
const agentProtocol = 1

// agentHello describes the machine of an agent.
type agentHello struct {
	Protocol int
	Addr     string // by which ssh has reached it; "" if unknown
	Port     int    // on which no process listens
}

// agentJob is the part of a job that an agent runs.
type agentJob struct {
	Part
	Ranks     int
	Command   []string
	Self      string // path of the agent's program on the launcher's machine; a Command of it is the agent's program
	Env       []string
	Dir       string
	Procs     int
	KeepGoing bool
}

func failureLine(e *RankError) string {
	return fmt.Sprintf("%c %d %d %d\n", lineFailed, e.Rank, e.Code, int(e.Signal))
}

var errMalformed = errors.New("malformed message of an agent")

// rankOf splits a line behind its letter into a rank and the rest.
func rankOf(line string) (rank int, rest string, err error) {
	number, rest, ok := strings.Cut(line, " ")
	if _, err = fmt.Sscanf(number, "%d", &rank); err != nil || !ok {
		return 0, "", errMalformed
	}
	return rank, rest, nil
}

func parseFailure(line string) (*RankError, error) {
	rank, rest, err := rankOf(line)
	if err != nil {
		return nil, err
	}
	e := &RankError{Rank: rank}
	var sig int
	if _, err := fmt.Sscanf(rest, "%d %d", &e.Code, &sig); err != nil {
		return nil, errMalformed
	}
	e.Signal = syscall.Signal(sig)
	return e, nil
}
