package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	o := execute(t, fine, "version")
	if o.status != statusOK || !strings.HasPrefix(o.stdout, "allcast ") || !strings.Contains(o.stdout, runtime.Version()) {
		t.Errorf("status %d: %q", o.status, o.stdout)
	}
	lines := execute(t, fine, "version", "--json").objects(t)
	if len(lines) != 1 || lines[0]["go"] != runtime.Version() || lines[0]["version"] == "" {
		t.Errorf("%v", lines)
	}
}

func TestReadBuild(t *testing.T) {
	info := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	if b := readBuild(info, true); b.Version != "v1.2.3" || b.Revision != "abc" || !b.Modified {
		t.Errorf("%+v", b)
	}
	if b := readBuild(nil, false); b.Version != "(devel)" || b.Revision != "" {
		t.Errorf("without build information: %+v", b)
	}
}
