package ip

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) {
	testenv.Rapid(0)
	testenv.Main(m)
}
