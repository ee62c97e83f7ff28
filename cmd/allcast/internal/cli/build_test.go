package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

func TestReadBuild(t *testing.T) {
	info := &debug.BuildInfo{
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.time", Value: "2026-11-18T00:00:00Z"},
			{Key: "vcs.modified", Value: "true"},
			{Key: "-tags", Value: "verbs"},
		},
	}
	if b := readBuild(info, true); b.Version != allcast.Version || b.Revision != "abc" || !b.Modified {
		t.Errorf("%+v", b)
	}
	want := fmt.Sprintf("allcast %s (protocol %d) commit abc of 2026-11-18T00:00:00Z (modified) built with %s for %s/%s "+
		"with the tags verbs", allcast.Version, allcast.Protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if got := readBuild(info, true).String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	info = &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}
	if b := readBuild(info, true); b.Module != "v0.1.0" || !strings.Contains(b.String(), " module v0.1.0 ") {
		t.Errorf("a build of a module: %+v", b)
	}
	if b := readBuild(nil, false); b.Version != allcast.Version || b.Revision != "" {
		t.Errorf("without build information: %+v", b)
	}
}
