package allcast

import "fmt"

// Alloc returns n bytes that suit the network best: on InfiniBand and RoCE, memory that
// the card knows already, so that operations on it need not register it each time. It is
// zero, and valid until Free, or until the job's communicator is closed.
func (c *Comm) Alloc(n int) ([]byte, error) {
	if c == nil || n < 0 {
		return nil, invalid("Alloc of %d bytes", n)
	}
	b, err := c.job.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("allcast: %w", err)
	}
	return b, nil
}

// Free gives back what Alloc returned, which must not be used any more.
func (c *Comm) Free(b []byte) error {
	if c == nil {
		return invalid("a nil communicator")
	}
	if err := c.job.Free(b); err != nil {
		return fmt.Errorf("allcast: %w", err)
	}
	return nil
}
