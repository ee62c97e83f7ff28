//go:build verbs

package verbs

import "testing"

func TestErrorNames(t *testing.T) {
	e := &Error{Op: "send", Device: "mlx5_0:1", QP: 0x11, Peer: 3, Status: 12, Vendor: 0x81}
	want := "verbs: mlx5_0:1: QP 0x11 to rank 3: send: RETRY_EXC_ERR: the peer does not answer (vendor's 0x81)"
	if e.Error() != want {
		t.Errorf("%v, want %s", e, want)
	}
	if s := Status(99).String(); s != "status 99" {
		t.Error(s)
	}
}
