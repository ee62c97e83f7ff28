package lab

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// hostEnv is what programs inside the lab are told about it.
func (p *Plan) hostEnv(base []string) []string {
	names := make([]string, len(p.Groups))
	for i, g := range p.Groups {
		names[i] = g.String()
	}
	return setEnv(base, "ALLCAST_IFNAME="+hostPort, "ALLCAST_GROUPS="+strings.Join(names, ","))
}

// rankEnv is what ranks are told besides.
func (p *Plan) rankEnv(base []string) []string {
	env := setEnv(p.hostEnv(base), racksVar+"="+p.racks())
	if _, set := os.LookupEnv("GOMAXPROCS"); !set {
		// A Go program takes threads and a heap's share for each processor; as many of them as
		// there are hosts gain nothing by it.
		env = setEnv(env, "GOMAXPROCS="+strconv.Itoa(max(1, runtime.NumCPU()/p.Graph.Hosts)))
	}
	return env
}

// setEnv replaces variables.
func setEnv(base []string, vars ...string) []string {
	set := make(map[string]bool, len(vars))
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		set[name] = true
	}
	env := make([]string, 0, len(base)+len(vars))
	for _, v := range base {
		if name, _, _ := strings.Cut(v, "="); !set[name] {
			env = append(env, v)
		}
	}
	return append(env, vars...)
}

// enterEnv completes the environment of a rank that enters its host: each is alone
// there, and rank 0 is on host 0.
func enterEnv(base []string, rank int, racks, master string) []string {
	env := setEnv(base, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR="+master)
	if list := strings.Split(racks, ","); rank < len(list) && list[rank] != "" {
		env = setEnv(env, "ALLCAST_RACK=leaf"+list[rank])
	}
	return env
}

// racksVar tells ranks on their way in which rack each of them is in.
const racksVar = "ALLCAST_LAB_RACKS"

// racks lists the leaf of every host.
func (p *Plan) racks() string {
	list := make([]string, p.Graph.Hosts)
	for h := range list {
		list[h] = strconv.Itoa(p.Graph.Rack(h))
	}
	return strings.Join(list, ",")
}
