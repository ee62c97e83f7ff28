package reproduce

import (
	"os"
	"runtime"
	"strings"
)

// Machine describes where a run took place.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
}

// ThisMachine describes this machine, as far as its system says.
func ThisMachine() Machine {
	m := Machine{Kernel: runtime.GOOS, CPU: runtime.GOARCH, Cores: runtime.NumCPU()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(release))
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = modelName(string(info), m.CPU)
	}
	return m
}

// modelName returns the first model name in the contents of /proc/cpuinfo. Not all architectures have one.
func modelName(info, otherwise string) string {
	_, rest, _ := strings.Cut(info, "model name")
	line, _, _ := strings.Cut(rest, "\n")
	if _, name, ok := strings.Cut(line, ":"); ok {
		return strings.TrimSpace(name)
	}
	return otherwise
}
