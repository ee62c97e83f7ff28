package calltest

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

// BadOptions are options, or a variable, that Join must refuse.
type BadOptions struct {
	Options     allcast.Options
	Name, Value string // of an environment variable; no variable if Name is empty
	Want        string // part of the error
}

// Refused checks that Join refuses each case with ErrOptions.
func Refused(t *testing.T, cases []BadOptions) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Options.Datapath+c.Options.Hook+c.Name+c.Value, func(t *testing.T) {
			if c.Name != "" {
				t.Setenv(c.Name, c.Value)
			}
			c.Options.Size = 1
			comm, err := allcast.Join(t.Context(), c.Options)
			if !errors.Is(err, allcast.ErrOptions) || !strings.Contains(err.Error(), c.Want) {
				t.Error(err)
				if comm != nil {
					_ = comm.Close()
				}
			}
		})
	}
}
