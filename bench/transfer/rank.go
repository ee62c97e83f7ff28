//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rankVariable holds the task of a rank.
const rankVariable = "ALLCAST_BENCH_TRANSFER"

// task is what all ranks do. Rank 0 sends.
type task struct {
	Program, Allcast, Source, Out string
	Args                          []string
	Keyed                         bool
}

// rank runs the task of this rank. Rank 0 prints its time.
func rank() error {
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(rankVariable)), &t); err != nil {
		return err
	}
	r, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return err
	}
	dir := filepath.Join(t.Out, fmt.Sprint(r))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	start := time.Now()
	switch {
	case t.Program == "allcast" && r == 0:
		err = t.allcast(append([]string{"send", t.Source, "--to", fmt.Sprint(size - 1)}, t.Args...)...)
	case t.Program == "allcast":
		err = t.allcast("recv", dir, "--from", os.Getenv("MASTER_ADDR"))
	case t.Program == "uftp" && r == 0:
		err = t.uftp(size)
	case t.Program == "uftp":
		return t.uftpd(r, dir)
	case r == 0:
		err = t.fanOut(size)
	default:
		err = t.fanIn(dir)
	}
	if err == nil && r == 0 {
		_, err = fmt.Fprintf(os.Stdout, "seconds %g\n", time.Since(start).Seconds())
	}
	return err
}

// allcast runs the command, with the key of the lab or without one.
func (t *task) allcast(args ...string) error {
	if !t.Keyed {
		args = append(args, "--insecure")
	}
	cmd := exec.Command(t.Allcast, args...)
	for _, v := range os.Environ() {
		if t.Keyed || !strings.HasPrefix(v, "ALLCAST_KEY=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return output(cmd)
}

func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, out)
	}
	return nil
}

// group is the multicast group that the lab forwards.
func group() string {
	first, _, _ := strings.Cut(os.Getenv("ALLCAST_GROUPS"), ",")
	host, _, _ := net.SplitHostPort(first)
	return host
}

const (
	udpBuffer = "104857600" // the largest that UFTP takes
	stopName  = "stop"
)

// uftp sends with UFTP, to a list of receivers so that it need not wait for more of them.
func (t *task) uftp(size int) error {
	var hosts []string
	for r := 1; r < size; r++ {
		hosts = append(hosts, fmt.Sprintf("0x%08x", r))
	}
	args := append([]string{
		"-I", os.Getenv("ALLCAST_IFNAME"), "-M", group(), "-P", group(), "-B", udpBuffer, "-t", "8", "-r", "0.01:0.01:15",
		"-H", strings.Join(hosts, ","),
	}, t.Args...)
	err := output(exec.Command("uftp", append(args, t.Source)...))
	stop, stopErr := os.Create(filepath.Join(t.Out, stopName))
	if stopErr == nil {
		stopErr = stop.Close()
	}
	if err == nil {
		err = stopErr
	}
	return err
}

// uftpd receives with UFTP until the sender has ended.
func (t *task) uftpd(r int, dir string) error {
	cmd := exec.Command("uftpd", "-d", "-D", dir, "-I", os.Getenv("ALLCAST_IFNAME"), "-M", group(), "-B", udpBuffer,
		"-c", "20971520", "-t", "-U", fmt.Sprintf("0x%08x", r), "-L", "/dev/null",
		"-P", filepath.Join(t.Out, fmt.Sprintf("pid%d", r)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(t.Out, stopName)); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

// fanOutPort is the port of the TCP fan-out.
const fanOutPort = "7801"

// fanOut sends the file over one connection per receiver, all at once.
func (t *task) fanOut(size int) error {
	l, err := net.Listen("tcp", ":"+fanOutPort)
	if err != nil {
		return err
	}
	errs := make(chan error, size)
	for range size - 1 {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { errs <- t.serveOne(c) }()
	}
	for range size - 1 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return l.Close()
}

func (t *task) serveOne(c net.Conn) error {
	f, err := os.Open(t.Source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := io.Copy(c, f); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1)) // the receiver has written everything
	return err
}

// fanIn receives the file.
func (t *task) fanIn(dir string) error {
	var c net.Conn
	var err error
	for start := time.Now(); time.Since(start) < 10*time.Second; {
		if c, err = net.Dial("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), fanOutPort)); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	f, err := os.Create(filepath.Join(dir, filepath.Base(t.Source)))
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, c); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = c.Write([]byte{1})
	return err
}
