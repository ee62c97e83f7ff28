package step

// Time is a reading of the driver's clock, or a span on it, in nanoseconds.
type Time int64

// Common spans.
const (
	Microsecond Time = 1000
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is later than every other Time.
const Never Time = 1<<63 - 1
