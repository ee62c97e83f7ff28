//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The guest writes its verdict to the debug port, and QEMU turns it into an exit status.
const (
	debugPort = 0xf4
	passed    = 1 // QEMU ends with 2*1 + 1
	failed    = 2
)

// boot runs the guest without KVM, because nested KVM often does not work.
func boot(image, initrd string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1536",
		"-display", "none", "-nodefaults", "-serial", "stdio", "-no-reboot",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=0x04", debugPort),
		"-kernel", image, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 mitigations=off")
	var complaints strings.Builder
	cmd.Stdout = struct{ io.Writer }{os.Stdout} // makes a pipe: QEMU turns its output to non-blocking
	cmd.Stderr = &complaints
	err := cmd.Run()
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the guest did not end within %v", limit)
	case err == nil:
		return errors.New("the guest ended without a verdict")
	case errors.As(err, &status) && status.ExitCode() == 2*passed+1:
		return nil
	case errors.As(err, &status) && status.ExitCode() == 2*failed+1:
		return errors.New("the tests failed in the guest")
	}
	return fmt.Errorf("QEMU: %w: %s", err, complaints.String())
}
