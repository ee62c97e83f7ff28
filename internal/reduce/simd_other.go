//go:build !amd64 || purego

package reduce

// There is no assembly here: every function says that it did nothing.

// simd is the off-switch of the tests.
var simd = false

// Path names the code that does the work: "go", or "avx2" for assembly.
func Path() string { return "go" }

func simdInto(_, _ []byte, _ Type, _ Op) bool { return false }

func simdDivide([]byte, Type, int) bool { return false }

func simdWiden([]float32, []byte, Type) bool { return false }

func simdAccumulate([]float32, []byte, Type, Op) bool { return false }

func simdRound([]byte, []float32, Type) bool { return false }
