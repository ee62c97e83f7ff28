//go:build !verbs

package world

import (
	"errors"

	"github.com/allcast/allcast/internal/settings"
)

func openVerbs(*joining) (verbsPort, error) {
	return nil, errors.New("the fabric verbs: " + settings.BuildVerbs)
}
