package datapath

import (
	"sync"

	"github.com/allcast/allcast/internal/engine/queue"
)

type commandKind uint8

const (
	commandOpen      commandKind = iota // landing
	commandClose                        // landing
	commandClaim                        // read; answered with claimed
	commandQuiesce                      // landing or op; answered with quiet
	commandMulticast                    // op, sub, psn, n, total; answered with Sent
	commandStop                         // the worker ends
)

// A command tells a worker what to do. Its kind says which fields count.
type command struct {
	kind    commandKind
	op      *Operation
	landing *landing
	read    *read
	sub     int
	psn, n  uint32 // chunks that are left to send
	total   uint32 // chunks that were to be sent
}

var commands = sync.Pool{New: func() any { return new(queue.Item[command]) }}

func newCommand(k commandKind) *queue.Item[command] {
	t := commands.Get().(*queue.Item[command])
	t.Value.kind = k
	return t
}

func freeCommand(t *queue.Item[command]) {
	*t = queue.Item[command]{}
	commands.Put(t)
}

// landingCommand is a command for the receive worker of a landing.
func landingCommand(k commandKind, l *landing) *queue.Item[command] {
	t := newCommand(k)
	t.Value.landing = l
	return t
}
