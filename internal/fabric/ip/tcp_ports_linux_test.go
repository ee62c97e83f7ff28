package ip

import (
	"os"
	"testing"
)

// A rank needs no port of its own for each connection that it makes: ranks of one address share the system's 28,000
// ports, and a mesh of 256 ranks has 65,000 connections.
func TestTCPPorts(t *testing.T) {
	if os.Getenv(mcastNamespaceVar) != "ports" {
		inNamespace(t, "ports", 1, "^TestTCPPorts$", "ip link set lo up")
		return
	}
	const ranks = 12
	w := newTCPWorld(t, ranks, tcpV4, nil)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("61000 61003"), 0); err != nil {
		t.Fatal(err)
	}
	for to := 1; to < ranks; to++ {
		w.ranks[0].Send(to, []byte("hello"))
	}
	for to := 1; to < ranks; to++ {
		w.recs[to].waitMsg(t, 0, "hello")
	}
}
