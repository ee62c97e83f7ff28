package calltest

import (
	"net"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// Hooks are the places where the kernel can look at packets on the loopback interface.
var Hooks = []string{"sockfilter", "tcx"}

// NeedBPF skips a test where the kernel cannot receive at that hook. The test chooses its datapath
// itself, so NeedBPF also clears the environment's choice.
func NeedBPF(t *testing.T, hook string) {
	t.Helper()
	ifi, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("no loopback interface: %v", err)
	}
	o, err := bpf.New(bpf.Config{Hook: bpf.Hook(hook), Interface: ifi, Chunk: 1000})
	if err != nil {
		t.Skip(err)
	}
	_ = o.Close()
	ClearDatapath(t)
}

// ClearDatapath clears the environment's choice of a datapath for the rest of a test.
func ClearDatapath(t *testing.T) {
	t.Helper()
	t.Setenv("ALLCAST_DATAPATH", "")
	t.Setenv("ALLCAST_HOOK", "")
}

// Datapaths runs a test on every datapath that the machine has.
func Datapaths(t *testing.T, f func(t *testing.T, o allcast.Options)) {
	t.Helper()
	t.Run("host", func(t *testing.T) {
		ClearDatapath(t)
		f(t, allcast.Options{Datapath: "host"})
	})
	for _, h := range Hooks {
		t.Run(h, func(t *testing.T) {
			NeedBPF(t, h)
			f(t, allcast.Options{Datapath: "bpf", Hook: h})
		})
	}
}
