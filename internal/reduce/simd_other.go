//go:build !amd64 || purego

package reduce

// Without assembly, every function reports that it did nothing.

// simd enables the assembly. Tests switch it off.
var simd = false

// Path names the active implementation: "go", or "avx2" for assembly.
func Path() string { return "go" }

func simdInto(_, _ []byte, _ Type, _ Op) bool { return false }

func simdDivide([]byte, Type, int) bool { return false }

func simdScale(_, _ []byte, _ Type, _ float64) bool { return false }

func simdWiden([]float32, []byte, Type) bool { return false }

func simdRound([]byte, []float32, Type) bool { return false }
