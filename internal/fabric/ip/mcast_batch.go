package ip

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
)

// mcastCheckBatch checks what the contract says of a batch: a kernel that is told to cut
// a message in equal parts would cut others elsewhere.
func mcastCheckBatch(b *fabric.Batch, most, chunk int) error {
	n := len(b.Headers)
	if n != len(b.Payloads) || n > most {
		return fmt.Errorf("multicast: a batch of %d headers and %d payloads; at most %d of both", n, len(b.Payloads), most)
	}
	if len(b.Payloads[0]) > chunk {
		return fmt.Errorf("multicast: a payload of %d bytes; at most %d", len(b.Payloads[0]), chunk)
	}
	for i, p := range b.Payloads {
		if len(p) > len(b.Payloads[0]) || len(p) < len(b.Payloads[0]) && i < n-1 {
			return fmt.Errorf("multicast: payload %d of %d has %d bytes, the first %d: only the last may be shorter", i, n, len(p), len(b.Payloads[0]))
		}
	}
	return nil
}
