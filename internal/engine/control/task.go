package control

import (
	"sync"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/wire"
)

type taskKind uint8

const (
	taskCall     taskKind = iota // call: the application made it
	taskDo                       // do: rare work
	taskMessage                  // peer, msg
	taskLost                     // peer, err: the connection has ended
	taskReport                   // event: of the datapath
	taskTick                     // the clock went off
	taskFinished                 // req, err: a large average is computed
)

// A task is work for the loop. Its kind says which fields count.
type task struct {
	kind  taskKind
	peer  int
	req   uint64
	call  *call
	do    func()
	err   error
	msg   wire.Msg
	event datapath.Event
}

var tasks = sync.Pool{New: func() any { return new(queue.Item[task]) }}

func newTask(k taskKind) *queue.Item[task] {
	t := tasks.Get().(*queue.Item[task])
	t.Value.kind = k
	return t
}

func freeTask(t *queue.Item[task]) {
	*t = queue.Item[task]{}
	tasks.Put(t)
}
