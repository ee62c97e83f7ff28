//go:build !verbs

package main

import "github.com/allcast/allcast/internal/settings"

// verbsFindings say that this program does not know of devices.
func verbsFindings() []finding {
	return []finding{{"verbs", findingMissing, settings.BuildVerbs, "none is needed: --fabric ip does the work"}}
}
