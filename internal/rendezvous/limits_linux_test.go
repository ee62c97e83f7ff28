package rendezvous

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// A rank that cannot connect because of a limit says so at once, and names the limit.
func TestDialLimit(t *testing.T) {
	w := newWorld(t, 2)
	testenv.NoMoreFiles(t)
	js := w.join(w.config(1, 2))
	if err := js[0].err; !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
}
