package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/paper"
)

// Select returns the entries with these IDs, or all if there are none, in the paper's order. Letter case does not
// matter.
func Select(entries []paper.Entry, ids []string) ([]paper.Entry, error) {
	if len(ids) == 0 {
		return entries, nil
	}
	var valid []string
	wanted := make(map[string]bool)
	for _, e := range entries {
		valid = append(valid, e.ID)
	}
	for _, id := range ids {
		i := slices.IndexFunc(valid, func(v string) bool { return strings.EqualFold(v, strings.TrimSpace(id)) })
		if i < 0 {
			return nil, fmt.Errorf("unknown entry %q; valid: %s", id, strings.Join(valid, ", "))
		}
		wanted[valid[i]] = true
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e paper.Entry) bool { return !wanted[e.ID] }), nil
}
