//go:build verbs

package verbs_test

import (
	"fmt"
	"os"
	"testing"
)

// The tests of this package that need a device run in a guest with Soft-RoCE ("make test-verbs"). Ranks
// are processes of the test binary.
func TestMain(m *testing.M) {
	if mode := os.Getenv("VERBS_RANK"); mode != "" {
		if err := asRank(mode); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
