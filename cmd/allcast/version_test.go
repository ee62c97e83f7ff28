package main

import (
	"runtime/debug"
	"testing"

	"github.com/allcast/allcast"
)

func TestReadBuild(t *testing.T) {
	info := &debug.BuildInfo{
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	if b := readBuild(info, true); b.Version != allcast.Version || b.Revision != "abc" || !b.Modified {
		t.Errorf("%+v", b)
	}
	if b := readBuild(nil, false); b.Version != allcast.Version || b.Revision != "" {
		t.Errorf("without build information: %+v", b)
	}
}
