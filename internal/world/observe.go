package world

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/observe"
)

// observe describes this process to "allcast inspect" and connects the flight recorder to its directory.
func (j *joining) observe(w *World, ec *engine.Config) {
	w.Job = fmt.Sprintf("%016x", j.number("job"))
	host, _ := os.Hostname() // best effort
	ec.Who = observe.State{
		Job: w.Job, Host: host, Program: filepath.Base(os.Args[0]), Version: j.Version, Interface: w.Interface,
		Multicast: w.NoMulticast, Metrics: j.Metrics.String(),
	}
	d, err := observe.NewDumper(j.Recorder, w.Job, j.Rank)
	if err != nil {
		j.Logger.Warn("the flight recorder cannot write to its directory", "err", err)
	}
	if d == nil {
		return
	}
	ec.Failed = func(dump *observe.Dump) {
		path, err := d.Write(dump)
		switch {
		case err != nil:
			j.Logger.Warn("the flight recorder could not write a dump", "err", err)
		case path != "":
			j.Logger.Warn("the flight recorder wrote a dump", "file", path)
		}
	}
}
