// Package secure runs jobs whose data is encrypted or has checksums. The kernel can do neither, so these
// tests are not for the bpf datapath.
package secure

import (
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }
