package pcap

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tshark dissects a capture with default settings, independent of the user's configuration.
func tshark(t *testing.T, write func(*Writer), args ...string) string {
	t.Helper()
	exe, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not in PATH")
	}
	var file bytes.Buffer
	w := newWriter(t, &file)
	write(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "test.pcap")
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"-r", name, "-n", "-o", "ip.check_checksum:TRUE"}, args...)...)
	cmd.Env = append(os.Environ(), "WIRESHARK_CONFIG_DIR="+dir, "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// No packet is malformed, and none looks like another protocol.
func TestTshark(t *testing.T) {
	write := func(w *Writer) {
		for _, length := range []int{0, 1, 15, 16, 64, 4096, 10000} {
			w.Datagram(1, 1, 2, 0xdeadbeef, length)
			w.Send(2, 1, 2, length)
			w.ReadResponse(4, 2, 1, length)
			for kind := range 256 { // 8 would be IPv4
				w.Message(2, 1, 2, append([]byte{byte(kind)}, make([]byte, length)...))
			}
		}
		w.ReadRequest(3, 1, 2, 0x1000, 4096)
	}
	if out := tshark(t, write); strings.Contains(out, "Malformed") {
		t.Errorf("%s", out)
	}
	if out := tshark(t, write, "-Y", "_ws.malformed || _ws.short || _ws.expert"); out != "" {
		t.Errorf("complaints:\n%s", out)
	}
	for line := range strings.Lines(tshark(t, write, "-T", "fields", "-e", "frame.protocols")) {
		line = strings.TrimSpace(line)
		if strings.TrimSuffix(line, ":data") != "eth:ethertype:ip:udp:infiniband" {
			t.Errorf("dissected as %s", line)
		}
	}
	out := tshark(t, write, "-V")
	for _, want := range []string{
		"Unreliable Datagram (UD) - SEND only with Immediate (101)",
		"Immediate Data: deadbeef",
		"Reliable Connection (RC) - SEND Only with Immediate (5)",
		"Reliable Connection (RC) - SEND First (0)",
		"Reliable Connection (RC) - RDMA READ Request (12)",
		"Reliable Connection (RC) - RDMA READ response Only (16)",
		"Unreliable Connection (UC) - SEND First (32)",
		"Invariant CRC",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %q", want)
		}
	}
}

func TestTsharkFields(t *testing.T) {
	write := func(w *Writer) {
		w.Datagram(1, 1, 2, 0xdeadbeef, 4096)
		w.Message(2_000_000_005, 1, 2, pattern(300))
		w.ReadResponse(3_000_000_000, 2, 1, 100)
	}
	args := []string{"-T", "fields", "-E", "separator=/s", "-E", "occurrence=f"}
	for _, f := range []string{
		"frame.time_relative", "frame.len", "frame.cap_len", "ip.checksum.status", "ip.len",
		"infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.immdt",
	} {
		args = append(args, "-e", f)
	}
	want := []string{
		"0.000000000 4166 4166 1 4152 101 0 deadbeef",
		"2.000000004 366 366 1 352 5 1 00000001",
		"2.999999999 162 162 1 148 16 2 ",
	}
	if out := tshark(t, write, args...); out != strings.Join(want, "\n")+"\n" {
		t.Errorf("got\n%swant\n%s", out, strings.Join(want, "\n"))
	}
}
