package control

import (
	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/wire"
)

type taskKind uint8

const (
	taskCall    taskKind = iota // call: the application made it
	taskDo                      // do: rare work
	taskMessage                 // peer, msg
	taskReport                  // event: of the datapath
	taskTick                    // the clock went off
)

// A task is work for the loop. Its kind says which fields count.
type task struct {
	kind  taskKind
	peer  int
	call  *call
	do    func()
	msg   wire.Msg
	event datapath.Event
}

func (c *Control) newTask(k taskKind) *queue.Item[task] {
	t := c.tasks.Item()
	t.Value.kind = k
	return t
}
