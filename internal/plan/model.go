package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Model is a fully sharded model: every rank holds 1/P of each layer.
type Model struct {
	Params  float64
	Layers  int
	DType   string        // one of DTypes
	Compute time.Duration // forward time of a layer; backward takes twice that
}

// LayerBytes returns the size of a layer's parameters, over all shards.
func (m *Model) LayerBytes() int64 {
	return int64(math.Ceil(m.Params / float64(m.Layers) * float64(elementBytes[m.DType])))
}

// shard returns the size of a rank's part of a layer.
func (m *Model) shard(ranks int) int64 { return (m.LayerBytes() + int64(ranks) - 1) / int64(ranks) }

// computeSeconds is the time that a step computes.
func (m *Model) computeSeconds() float64 { return 3 * float64(m.Layers) * m.Compute.Seconds() }

// DTypes lists the types of parameters.
const DTypes = "f8, f16, bf16, f32"

var elementBytes = map[string]int{"f8": 1, "f16": 2, "bf16": 2, "f32": 4}

// Limits of a model.
const (
	MaxParams  = 1e14
	MaxLayers  = 1000
	MaxCompute = time.Minute
)

var paramUnits = map[byte]float64{'K': 1e3, 'M': 1e6, 'B': 1e9, 'T': 1e12}

// ParseParams returns a number of parameters, such as 7B, 1.3B or 350M.
func ParseParams(text string) (float64, error) {
	number, unit := text, 1.0
	if n := len(text); n > 0 && paramUnits[upperCase(text[n-1])] > 0 {
		number, unit = text[:n-1], paramUnits[upperCase(text[n-1])]
	}
	// Forms that only programmers write, such as 0x1p3 and inf, are typing errors here.
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.Trim(number, "0123456789.") != "" || value*unit < 1 || value*unit > MaxParams {
		return 0, fmt.Errorf("%q is no number of parameters: want 1 to 100T, such as 7B, 1.3B or 350M", text)
	}
	return value * unit, nil
}

func upperCase(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// DefaultLayers returns the number of layers of a typical model with that many parameters.
func DefaultLayers(params float64) int {
	for _, size := range typicalLayers {
		if params <= size.params {
			return size.layers
		}
	}
	return 126
}

// typicalLayers holds the depths of the Llama models by their size: 1B, 3B, 7B, 13B, 33B and 70B. 405B has 126.
var typicalLayers = []struct {
	params float64
	layers int
}{{2e9, 16}, {5e9, 28}, {10e9, 32}, {20e9, 40}, {50e9, 60}, {150e9, 80}}

// What a rank computes if nothing else is given. A token takes two operations per parameter forward.
const (
	DefaultTokens = 7000   // tokens per rank and step
	DefaultSpeed  = 150e12 // operations per second of a rank
)

// DefaultCompute returns the forward time of a layer.
func DefaultCompute(params float64, layers int) time.Duration {
	seconds := 2 * params / float64(layers) * DefaultTokens / DefaultSpeed
	return min(time.Duration(seconds*1e9), MaxCompute)
}

// Check returns an error if the model cannot be planned for.
func (m *Model) Check() error {
	switch {
	case !(m.Params >= 1 && m.Params <= MaxParams):
		return fmt.Errorf("%g parameters: want 1 to %g", m.Params, float64(MaxParams))
	case m.Layers < 1 || m.Layers > MaxLayers:
		return fmt.Errorf("%d layers: want 1 to %d", m.Layers, MaxLayers)
	case elementBytes[m.DType] == 0:
		return fmt.Errorf("type %q: valid are %s", m.DType, DTypes)
	case m.Compute < 0 || m.Compute > MaxCompute:
		return fmt.Errorf("%v to compute a layer: want 0s to %v", m.Compute, MaxCompute)
	}
	return nil
}
