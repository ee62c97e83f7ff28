// Package strangers runs jobs while processes without the key attack them.
package strangers

import (
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }
