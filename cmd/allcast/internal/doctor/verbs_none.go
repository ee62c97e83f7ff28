//go:build !verbs

package doctor

import "github.com/allcast/allcast/internal/settings"

// verbsFindings says that this program was built without verbs.
func verbsFindings() []finding {
	return []finding{missing("verbs", settings.BuildVerbs, "none needed: --fabric ip works")}
}
