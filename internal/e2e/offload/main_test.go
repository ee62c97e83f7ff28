// Package offload tests receiving in the kernel. Most of its tests need root.
package offload

import (
	"bytes"
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

var key = bytes.Repeat([]byte{7}, 32)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }
