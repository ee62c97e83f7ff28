package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

type versionCmd struct{}

func (versionCmd) Help() string { return "Example:\n  allcast version --json" }

// build describes the binary.
type build struct {
	Version  string `json:"version"`            // version that all ranks of a job must have
	Revision string `json:"revision,omitempty"` // revision of the checkout, if the build recorded it
	Modified bool   `json:"modified,omitempty"` // uncommitted changes in the checkout
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func (versionCmd) Run(e *cli.Env) error {
	b := readBuild(debug.ReadBuildInfo())
	revision := ""
	if b.Revision != "" {
		revision = " revision " + b.Revision
		if b.Modified {
			revision += " (modified)"
		}
	}
	return e.PrintResult(b, fmt.Sprintf("allcast %s%s %s %s/%s\n", b.Version, revision, b.Go, b.OS, b.Arch))
}

func readBuild(info *debug.BuildInfo, ok bool) build {
	b := build{Version: allcast.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
