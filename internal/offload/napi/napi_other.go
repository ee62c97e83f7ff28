//go:build !linux

package napi

import (
	"errors"
	"net"
)

// Dedicate fails.
func Dedicate(*net.Interface, []int) (undo func() error, err error) {
	return nil, errors.New("receive cores need Linux")
}

// Threads fails.
func Threads(*net.Interface) ([]int, error) { return nil, errors.New("receive cores need Linux") }
