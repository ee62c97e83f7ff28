package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m, 0) }
