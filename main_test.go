package allcast_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.NoCalibration()
	goleak.VerifyTestMain(m)
}
