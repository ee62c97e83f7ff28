package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/allcast/allcast"
)

// Build describes the binary.
type Build struct {
	Version  string `json:"version"`            // of the library and the command
	Protocol int    `json:"protocol"`           // must be the same on all ranks of a job
	Revision string `json:"revision,omitempty"` // commit of the checkout, if the build recorded it
	Time     string `json:"time,omitempty"`     // of that commit
	Modified bool   `json:"modified,omitempty"` // uncommitted changes in the checkout
	Module   string `json:"module,omitempty"`   // version of the module, for a build that is not from a checkout
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Tags     string `json:"tags,omitempty"` // build tags, such as verbs
}

// The commit and its time, which the linker sets for a release. Other builds take them from the build information.
var revision, revisionTime string

// ReadBuild describes this binary.
func ReadBuild() Build { return readBuild(debug.ReadBuildInfo()) }

// String describes the binary in one line.
func (b Build) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "allcast %s (protocol %d)", b.Version, b.Protocol)
	switch {
	case b.Revision != "":
		text.WriteString(" commit " + b.Revision)
		if b.Time != "" {
			text.WriteString(" of " + b.Time)
		}
		if b.Modified {
			text.WriteString(" (modified)")
		}
	case b.Module != "":
		text.WriteString(" module " + b.Module)
	}
	fmt.Fprintf(&text, " built with %s for %s/%s", b.Go, b.OS, b.Arch)
	if b.Tags != "" {
		text.WriteString(" with the tags " + b.Tags)
	}
	return text.String()
}

func readBuild(info *debug.BuildInfo, ok bool) Build {
	b := Build{
		Version: allcast.Version, Protocol: allcast.Protocol, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
	}
	b.Revision, b.Modified = strings.CutSuffix(revision, "-modified")
	b.Time = revisionTime
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "-tags":
			b.Tags = s.Value
		}
	}
	if v := info.Main.Version; b.Revision == "" && v != "(devel)" {
		b.Module = v
	}
	return b
}

// PrintVersion prints the description of this binary.
func (e *Env) PrintVersion() error {
	b := ReadBuild()
	return e.PrintResult(b, b.String()+"\n")
}

// versionFlag is --version, which takes the place of a subcommand.
type versionFlag bool

// BeforeReset runs before the parser misses a subcommand.
func (versionFlag) BeforeReset(app *kong.Kong, e *Env) error {
	e.JSON = slices.Contains(e.Args, "--json")
	err := e.PrintVersion()
	app.Exit(e.exitStatus(err))
	return err
}
