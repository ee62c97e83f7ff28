package world

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { testenv.Main(m) }
