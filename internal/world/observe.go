package world

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/observe"
)

// observe says who we are to who inspects us, and where failures are written down.
func (j *joining) observe(w *World, ec *engine.Config) {
	// Who sees the name learns nothing of the secret.
	w.Job = fmt.Sprintf("%016x", j.number("job"))
	host, _ := os.Hostname() // "" will do
	ec.Who = observe.State{
		Job: w.Job, Host: host, Program: filepath.Base(os.Args[0]), Version: j.Version, Interface: w.Interface, Multicast: w.NoMulticast, Metrics: j.Metrics,
	}
	d, err := observe.NewDumper(j.Recorder, w.Job, j.Rank)
	if err != nil {
		j.Log.Warn("what the flight recorder holds cannot be written", "err", err)
	}
	if d == nil {
		return
	}
	ec.Failed = func(dump *observe.Dump) {
		path, err := d.Write(dump)
		switch {
		case err != nil:
			j.Log.Warn("what the flight recorder holds could not be written", "err", err)
		case path != "":
			j.Log.Warn("what the flight recorder holds was written", "file", path)
		}
	}
}
