//go:build linux

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
)

// packages maps a program to the Debian package that contains it.
var packages = map[string]string{
	"mpirun.openmpi": "openmpi-bin",
	"mpicc.openmpi":  "libopenmpi-dev",
	"mpiexec.hydra":  "mpich",
	"mpicc.mpich":    "libmpich-dev",
}

// install installs the packages of missing programs.
func install(ctx context.Context, programs ...string) error {
	var missing []string
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, packages[name])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	log.Printf("installing %v", missing)
	cmd := command(ctx, "apt-get", append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get install %v: %w: %s", missing, err, lastLine(out))
	}
	return nil
}
