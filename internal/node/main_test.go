package node

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Rapid(0)
	m.Run()
}
