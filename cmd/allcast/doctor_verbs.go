//go:build verbs

package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric/verbs"
)

// verbsFindings list the InfiniBand and RoCE ports.
func verbsFindings() []finding {
	const fix = "none is needed: --fabric ip does the work"
	infos, err := verbs.List()
	if err != nil {
		return []finding{{"verbs", findingMissing, err.Error(), fix}}
	}
	if len(infos) == 0 {
		return []finding{{"verbs", findingMissing, "no device", fix}}
	}
	var all []finding
	for _, i := range infos {
		if i.Err != nil {
			all = append(all, finding{"verbs " + i.Name, findingWarn, i.Err.Error(), "bring it up; \"rdma link\" and \"ibv_devinfo\" tell more"})
			continue
		}
		detail := fmt.Sprintf("%s, %s, MTU %d, GID %v", i.Link, i.State, i.MTU, i.GID)
		if i.Net != "" {
			detail += ", interface " + i.Net
		}
		all = append(all, finding{"verbs " + i.Name, findingOK, detail, ""})
	}
	return all
}
