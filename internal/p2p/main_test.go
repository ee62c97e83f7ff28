package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Rapid(300)
	m.Run()
}
