package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Rapid(120)
	m.Run()
}
