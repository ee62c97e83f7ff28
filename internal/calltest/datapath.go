package calltest

import (
	"net"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/settings"
)

// Hooks are the attachment points of the kernel's program that work on the loopback interface.
var Hooks = []string{"sockfilter", "tcx"}

// NeedBPF skips a test if the kernel cannot receive at the hook. It also clears the datapath of the
// environment, because the test chooses its own.
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

// ClearDatapath clears the datapath of the environment for the rest of a test.
func ClearDatapath(t *testing.T) {
	t.Helper()
	t.Setenv("ALLCAST_DATAPATH", "")
	t.Setenv("ALLCAST_HOOK", "")
}

// Datapaths runs a test on every datapath that works on this machine, or only on the one that the environment
// names.
func Datapaths(t *testing.T, f func(t *testing.T, o allcast.Options)) {
	t.Helper()
	datapath, hook := settings.Process.Get("ALLCAST_DATAPATH"), settings.Process.Get("ALLCAST_HOOK")
	if datapath == "" || datapath == "host" {
		t.Run("host", func(t *testing.T) {
			ClearDatapath(t)
			f(t, allcast.Options{Datapath: "host"})
		})
	}
	for _, h := range Hooks {
		if datapath == "host" || hook != "" && h != hook {
			continue
		}
		t.Run(h, func(t *testing.T) {
			NeedBPF(t, h)
			f(t, allcast.Options{Datapath: "bpf", Hook: h})
		})
	}
}
