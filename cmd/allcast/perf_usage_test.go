package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Bad input of what perf has grown since ends with status 2, and says what is valid.
func TestPerfUsageErrors(t *testing.T) {
	const pair = "perf " + perfPair + " "
	for _, name := range []string{"RANK", "WORLD_SIZE"} {
		unset(t, name)
	}
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"perf", perfPair},
		{"perf reduce-scatter+allgather", perfPair},
		{pair + "--algo ring", "as in mcast+ring"},
		{pair + "--algo ring+ring+ring", "as in mcast+ring"},
		{pair + "--algo mcast+ring,", "as in mcast+ring"},
		{pair + "--algo mcast+inc", "no network has in-network reduction yet"},
		{pair + "--algo mcast+inc", "valid for reduce-scatter: recursive-halving, ring, auto"},
		{pair + "--algo binomial+ring", "valid for allgather: mcast, bruck, linear, recursive-doubling, ring, auto"},
		{pair + "--algo ring+mcast", "valid for reduce-scatter: recursive-halving, ring, auto"},
		{pair + "--algo +", "valid for allgather"},
		{pair + "--dtype f8", "bf16"},
		{pair + "-b 1000000G", "GiB are free"},
		{"perf allgather --algo ring+ring", "valid for allgather: mcast"},
		{"perf broadcast --osu --ranks 1", "2 ranks or more"},
		{"perf broadcast --osu -n 0", "1 or more"},
		{"perf broadcast --osu -w -1", "0 or more"},
		{"perf barrier --raw=", "name of a file"},
		{"perf barrier --raw " + dir, "directory"},
		{"perf barrier --raw " + filepath.Join(dir, "no", "such.csv"), "want a file that can be written"},
	} {
		o := execute(t, fine, fields(c.args)...)
		if o.status != statusUsage || o.stdout != "" || !strings.Contains(o.stderr, c.want) || !strings.HasPrefix(o.stderr, "allcast: ") {
			t.Errorf("allcast %s: status %d, want %d and %q: %s%s", c.args, o.status, statusUsage, c.want, o.stdout, o.stderr)
		}
	}
}
