package main

import (
	"io"

	"github.com/allcast/allcast/internal/sim"
)

func drawSteps(_ io.Writer, _ []*sim.FSDPResult) error { return nil }
