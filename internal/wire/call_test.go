package wire

import (
	"strings"
	"testing"
)

// The numbers of the kinds and of the algorithms are part of the wire format and must not change.
func TestCallNumbersAreFixed(t *testing.T) {
	names := []string{
		"broadcast", "allgather", "reduce-scatter", "allreduce", "barrier", "gather", "gatherv", "scatter", "scatterv",
		"reduce", "alltoall", "alltoallv", "send", "recv",
	}
	for i, name := range names {
		if k := CallKind(i + 1); k.String() != name {
			t.Errorf("kind %d is %v, want %s", i+1, k, name)
		}
	}
	if n := len(names) - 2; len(CallKinds()) != n || CallKinds()[n-1] != Alltoallv {
		t.Errorf("the collectives are %v", CallKinds())
	}
	algorithms := []string{
		"mcast", "inc", "binomial", "knomial", "binary", "chain", "scatter-allgather", "ring", "linear",
		"recursive-doubling", "bruck", "recursive-halving", "dissemination", "pairwise", "pat",
	}
	for i, name := range algorithms {
		if a := Algorithm(i + 1); a.String() != name || AlgorithmOf(name) != a {
			t.Errorf("algorithm %d is %v, want %s", i+1, a, name)
		}
	}
	if AlgorithmOf("none") != 0 || Algorithm(0).String() != "unknown" || Algorithm(99).String() != "algorithm(99)" {
		t.Error("an unknown algorithm has a name")
	}
}

// An unknown kind, which a peer may send, has no properties.
func TestUnknownKind(t *testing.T) {
	for _, k := range []CallKind{0, endOfKinds, 255} {
		if k.Rooted() || k.Reduces() || k.Blocks() || k.Private() || !strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("%v has properties", k)
		}
	}
}

func TestDescribe(t *testing.T) {
	typeName := func(uint16) string { return "sum of float32" }
	for want, c := range map[string]Call{
		"something else":                        {},
		"barrier, algorithm dissemination":      {Kind: Barrier, Algo: AlgorithmOf("dissemination")},
		"allgather of 12 bytes":                 {Kind: Allgather, Bytes: 12},
		"broadcast of 12 bytes from root 3":     {Kind: Broadcast, Bytes: 12, Root: 3},
		"scatter of 12 bytes from root 3":       {Kind: Scatter, Bytes: 12, Root: 3},
		"gather of 12 bytes to root 3":          {Kind: Gather, Bytes: 12, Root: 3},
		"allreduce of 12 bytes, sum of float32": {Kind: Allreduce, Bytes: 12},
		"reduce of 12 bytes to root 3, sum of float32, algorithm chain": {
			Kind: Reduce, Bytes: 12, Root: 3, Algo: AlgorithmOf("chain"),
		},
		"gatherv with 5 bytes between the two ranks to root 1":    {Kind: Gatherv, Bytes: 5, Root: 1},
		"scatterv with 5 bytes between the two ranks from root 1": {Kind: Scatterv, Bytes: 5, Root: 1},
		"alltoallv with 5 bytes between the two ranks":            {Kind: Alltoallv, Bytes: 5},
		"alltoall of 7 bytes, algorithm pairwise":                 {Kind: Alltoall, Bytes: 7, Algo: AlgorithmOf("pairwise")},
		"kind(77) of 1 bytes":                                     {Kind: 77, Bytes: 1},
	} {
		if got := c.Describe(typeName); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Call{Kind: Allreduce, Bytes: 12}).String(); got != "allreduce of 12 bytes" {
		t.Errorf("without names of types: %q", got)
	}
}

// The key of a message names its sender, differs from all numbers of collectives, and grows with the number.
func TestMailKey(t *testing.T) {
	for _, sender := range []int{0, 1, 1 << 20} {
		last := uint64(0)
		for _, n := range []uint64{0, 1, 2, 1<<40 - 1} {
			key := MailKey(sender, n)
			if got, isMail := MailSender(key); got != sender || !isMail || key <= last {
				t.Errorf("message %d of rank %d: key %x names rank %d", n, sender, key, got)
			}
			last = key
		}
	}
	for _, seq := range []uint64{0, 1, 1 << 50, 1<<63 - 1} {
		if _, isMail := MailSender(seq); isMail {
			t.Errorf("%x is the number of a collective", seq)
		}
	}
}
