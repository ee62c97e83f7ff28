// Package secure runs jobs with encryption or checksums. The bpf datapath supports neither, so these tests
// do not use it.
package secure

import (
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }
