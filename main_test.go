package allcast_test

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.NoCalibration()
	testenv.PatientRanks()
	testenv.Main(m)
}
