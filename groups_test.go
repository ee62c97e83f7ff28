package allcast

import (
	"errors"
	"strings"
	"testing"
)

func TestGroups(t *testing.T) {
	env := func(groups string) func(string) (string, bool) {
		vars := map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234", "ALLCAST_GROUPS": groups}
		return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	}
	cfg, _, err := Options{Subgroups: 2}.settle(env("239.1.2.3:20000,[ff15::1]:20001"))
	if err != nil || len(cfg.Groups) != 2 || cfg.Groups[0].String() != "239.1.2.3:20000" || cfg.Groups[1].String() != "[ff15::1]:20001" {
		t.Errorf("%v, %v", cfg.Groups, err)
	}
	if cfg, _, err := (Options{}).settle(env("")); err != nil || cfg.Groups != nil {
		t.Errorf("none: %v, %v", cfg.Groups, err)
	}
	for groups, want := range map[string]string{
		"239.1.2.3:20000":                 "2 subgroups, and only 1",
		"239.1.2.3":                       "not ADDRESS:PORT",
		"239.1.2.3:0":                     "not ADDRESS:PORT",
		"239.1.2.3:20000,":                "not ADDRESS:PORT",
		"10.0.0.1:20000":                  "not a multicast address",
		"239.1.2.3:20000,239.1.2.3:20000": "twice",
	} {
		if _, _, err := (Options{Subgroups: 2}).settle(env(groups)); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ALLCAST_GROUPS") {
			t.Errorf("%q: %v, want %q", groups, err, want)
		}
	}
}
