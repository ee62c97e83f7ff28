package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

func (versionCmd) Help() string { return "Example:\n  allcast version --json" }

// build is what the binary knows about its making.
type build struct {
	Version  string `json:"version"`            // the module's, "(devel)" when built from a checkout
	Revision string `json:"revision,omitempty"` // of the checkout, where the build recorded it
	Modified bool   `json:"modified,omitempty"` // the checkout had changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func (versionCmd) Run(a *app) error {
	b := readBuild(debug.ReadBuildInfo())
	if a.json {
		return a.printJSON(b)
	}
	revision := ""
	if b.Revision != "" {
		revision = " revision " + b.Revision
		if b.Modified {
			revision += " (modified)"
		}
	}
	_, err := fmt.Fprintf(a.stdout, "allcast %s%s %s %s/%s\n", b.Version, revision, b.Go, b.OS, b.Arch)
	return err
}

func readBuild(info *debug.BuildInfo, ok bool) build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
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
