package lab

import (
	"slices"
	"strconv"
	"strings"
)

// hostEnv is the environment of programs inside the lab: a base with other values of some variables. Aggregators
// outside the lab cannot be reached from it.
func (p *Plan) hostEnv(base []string, vars ...string) []string {
	names := make([]string, len(p.Groups))
	for i, g := range p.Groups {
		names[i] = g.String()
	}
	vars = append(vars, "ALLCAST_IFNAME="+hostPort, "ALLCAST_GROUPS="+strings.Join(names, ","),
		"ALLCAST_COMM_GROUPS="+commNet.String())
	if len(p.Aggregators) > 0 {
		vars = append(vars, "ALLCAST_AGGREGATORS="+p.aggregatorTree(), "ALLCAST_SITE_KEY_FILE="+keyPath(p.Config.Name))
	}
	env := slices.DeleteFunc(slices.Clone(base), func(old string) bool {
		name, _, _ := strings.Cut(old, "=")
		if name == "ALLCAST_AGGREGATORS" || name == "ALLCAST_SITE_KEY_FILE" {
			return true
		}
		return slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	return append(env, vars...)
}

// rankEnv is the environment of a rank. Each rank is alone on its host.
func (p *Plan) rankEnv(base []string, rank int) []string {
	return p.hostEnv(base, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR="+p.HostAddr(0).String(),
		"ALLCAST_RACK=leaf"+strconv.Itoa(p.Graph.Rack(rank)))
}
