//go:build verbs

package doctor

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric/verbs"
)

// verbsFindings lists the InfiniBand and RoCE ports.
func verbsFindings() []finding {
	const fix = "none needed: --fabric ip works"
	infos, err := verbs.List()
	if err != nil {
		return []finding{missing("verbs", err.Error(), fix)}
	}
	if len(infos) == 0 {
		return []finding{missing("verbs", "no device", fix)}
	}
	var all []finding
	for _, i := range infos {
		if i.Err != nil {
			all = append(all, warn("verbs "+i.Name, i.Err.Error(),
				"bring it up; \"rdma link\" and \"ibv_devinfo\" show details"))
			continue
		}
		detail := fmt.Sprintf("%s, %s, MTU %d, GID %v", i.Link, i.State, i.MTU, i.GID)
		if i.Net != "" {
			detail += ", interface " + i.Net
		}
		all = append(all, ok("verbs "+i.Name, detail))
	}
	return all
}
