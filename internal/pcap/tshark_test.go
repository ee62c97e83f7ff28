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

func TestTsharkWholePackets(t *testing.T) {
	write := func(w *Writer) {
		w.Snap = maxSnap
		w.Datagram(1, 1, 2, 0xdeadbeef, 3, pattern(4096), 4096)
		w.Message(2, 1, 2, 3, pattern(22), 22)
		w.ReadRequest(3, 1, 2, 4, 0x1000, 4096)
		w.ReadResponse(4, 2, 1, 4, pattern(4095), 4095)
	}
	for _, view := range [][]string{nil, {"-V"}} { // the packet list, and the details
		if out := tshark(t, write, view...); strings.Contains(out, "Malformed") {
			t.Errorf("%v:\n%s", view, out)
		}
	}
	out := tshark(t, write, "-V")
	for _, want := range []string{
		"Unreliable Datagram (UD) - SEND only with Immediate (101)",
		"Immediate Data: deadbeef",
		"Reliable Connection (RC) - SEND Only (4)",
		"Reliable Connection (RC) - RDMA READ Request (12)",
		"Reliable Connection (RC) - RDMA READ response Only (16)",
		"Invariant CRC",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %q in\n%s", want, out)
		}
	}
}

// Truncated packets have a note in the Info column (see the package comment), but their headers are
// valid.
func TestTsharkCutPackets(t *testing.T) {
	write := func(w *Writer) {
		w.Datagram(1, 1, 2, 0xdeadbeef, 3, nil, 4096)
		w.Message(2_000_000_005, 1, 2, 4, pattern(300), 300)
		w.ReadResponse(3_000_000_000, 2, 1, 5, nil, 1<<20)
	}
	if out := tshark(t, write, "-V"); strings.Contains(out, "Malformed") {
		t.Errorf("%s", out)
	}
	args := []string{"-T", "fields", "-E", "separator=/s", "-E", "occurrence=f"}
	for _, f := range []string{
		"frame.time_relative", "frame.len", "frame.cap_len", "ip.checksum.status", "ip.len",
		"infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.immdt",
	} {
		args = append(args, "-e", f)
	}
	want := []string{
		"0.000000000 4166 66 1 4152 101 3 deadbeef",
		"2.000000004 358 182 1 344 4 4 ",
		"2.999999999 1048638 58 1 65535 16 5 ",
	}
	if out := tshark(t, write, args...); out != strings.Join(want, "\n")+"\n" {
		t.Errorf("got\n%swant\n%s", out, strings.Join(want, "\n"))
	}
}
