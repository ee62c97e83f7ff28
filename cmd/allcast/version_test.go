package main

import (
	"runtime/debug"
	"testing"
)

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
