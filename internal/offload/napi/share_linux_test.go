package napi

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The first process to leave changes nothing; the last one restores.
func TestProcesses(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	if before.equal(applied) {
		t.Fatal("a new interface is threaded: nothing can be seen here")
	}
	a, b := startProcess(t, dir), startProcess(t, dir)
	a.do("join")
	b.do("join")
	checkSettings(t, ifi, applied, "both joined")
	a.do("leave")
	checkSettings(t, ifi, applied, "the first left")
	checkFiles(t, dir, 1)
	a.do("join")
	b.do("leave")
	checkSettings(t, ifi, applied, "the first came back, the second left")
	a.do("leave")
	checkSettings(t, ifi, before, "all left")
	checkFiles(t, dir, 0)
}

// Settings that were on before stay on afterwards.
func TestProcessesKeepWhatWasOn(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	if err := Feature(ifi.Name, "rx-gro", true); err != nil {
		t.Fatal(err)
	}
	before := settingsOf(t, ifi)
	a, b := startProcess(t, dir), startProcess(t, dir)
	for _, p := range []*process{a, b} {
		p.do("join")
	}
	for _, p := range []*process{a, b} {
		checkSettings(t, ifi, applied, "not all left")
		p.do("leave")
	}
	checkSettings(t, ifi, before, "all left")
}

// A process that is killed has left: another one that is the last restores.
func TestKilledFirst(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	a, b := startProcess(t, dir), startProcess(t, dir)
	a.do("join")
	b.do("join")
	a.kill()
	checkSettings(t, ifi, applied, "the first was killed")
	b.do("leave")
	checkSettings(t, ifi, before, "the second left")
	checkFiles(t, dir, 0)
}

// If the last process is killed, the next one does not take its settings for the original ones.
func TestKilledLast(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	a, b := startProcess(t, dir), startProcess(t, dir)
	a.do("join")
	b.do("join")
	a.do("leave")
	b.kill()
	checkSettings(t, ifi, applied, "the last was killed")
	checkFiles(t, dir, 1)
	c := startProcess(t, dir)
	c.do("join")
	checkSettings(t, ifi, applied, "another joined")
	c.do("leave")
	checkSettings(t, ifi, before, "it left")
	checkFiles(t, dir, 0)
}

// Users in one process count one by one, and repeated undos do not.
func TestOneProcess(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	first, second := mustDedicate(t, dir, ifi), mustDedicate(t, dir, ifi)
	first()
	first()
	checkSettings(t, ifi, applied, "the first left")
	second()
	checkSettings(t, ifi, before, "all left")
	third := mustDedicate(t, dir, ifi)
	second()
	checkSettings(t, ifi, applied, "the second left again")
	third()
	checkSettings(t, ifi, before, "the third left")
}

// Processes and threads join and leave at the same time. The settings are on for each of them.
func TestConcurrent(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	procs := []*process{startProcess(t, dir), startProcess(t, dir), startProcess(t, dir)}
	for _, p := range procs {
		p.tell("loop")
	}
	var threads []<-chan error
	for range 3 {
		threads = append(threads, inNamespace(t, func() error { return loop(dir, ifi, func() {}) }))
	}
	for _, done := range threads {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, p := range procs {
		for p.line() != "done loop" {
		}
	}
	checkSettings(t, ifi, before, "all left")
	checkFiles(t, dir, 0)
}

// A process can be killed at any point: when it joins, when it leaves, and in between.
func TestKilledAnywhere(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	for kills := range 8 {
		a, b := startProcess(t, dir), startProcess(t, dir)
		a.tell("loop")
		b.tell("loop")
		for range kills {
			a.line()
		}
		a.kill()
		b.kill()
	}
	undo := mustDedicate(t, dir, ifi)
	checkSettings(t, ifi, applied, "joined")
	undo()
	checkSettings(t, ifi, before, "left")
	checkFiles(t, dir, 0)
}

// Namespaces with interfaces of the same name and index do not share anything.
func TestNamespacesApart(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	undo := mustDedicate(t, dir, ifi)
	t.Run("another", func(t *testing.T) {
		other := veth(t)
		if other.Index != ifi.Index {
			t.Fatalf("indexes are %d and %d", ifi.Index, other.Index)
		}
		undo := mustDedicate(t, dir, other)
		checkFiles(t, dir, 2)
		undo()
		checkSettings(t, other, before, "the other left")
	})
	checkSettings(t, ifi, applied, "the other left")
	undo()
	checkSettings(t, ifi, before, "all left")
	checkFiles(t, dir, 0)
}

// Undo works on a thread in another namespace, and after the interface was renamed.
func TestUndoElsewhere(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	undo, err := dedicate(dir, ifi, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByIndex(ifi.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetName(link, "renamed"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- undo() }()
	if err := <-done; err != nil {
		t.Error(err)
	}
	checkSettings(t, ifi, before, "left")
	checkFiles(t, dir, 0)
}

// Undo has nothing to do for an interface that is gone.
func TestUndoGone(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	undo := mustDedicate(t, dir, ifi)
	deleteLink(t, ifi)
	undo()
	checkFiles(t, dir, 0)
}

// A new interface may have the index of one that is gone. Users of the old one do not touch the new one.
func TestIndexUsedAgain(t *testing.T) {
	old, dir := veth(t), registryDir(t)
	undo := mustDedicate(t, dir, old)
	ifi := replace(t, old)
	before := settingsOf(t, ifi)
	undo()
	checkSettings(t, ifi, before, "the old interface's user left")
	checkFiles(t, dir, 0)
}

// The same if the new interface has users.
func TestIndexUsedAgainByUsers(t *testing.T) {
	old, dir := veth(t), registryDir(t)
	undoOld := mustDedicate(t, dir, old)
	ifi := replace(t, old)
	before := settingsOf(t, ifi)
	undo := mustDedicate(t, dir, ifi)
	undoOld()
	checkSettings(t, ifi, applied, "the old interface's user left")
	checkFiles(t, dir, 1)
	undo()
	checkSettings(t, ifi, before, "all left")
	checkFiles(t, dir, 0)
}

// replace makes another interface with the same name and index, on which one feature is on.
func replace(t *testing.T, old *net.Interface) *net.Interface {
	t.Helper()
	deleteLink(t, old)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = old.Name, old.Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "right"}); err != nil {
		t.Fatal(err)
	}
	ifi := setUp(t)
	if ifi.Index != old.Index {
		t.Fatalf("index %d, want %d", ifi.Index, old.Index)
	}
	if err := Feature(ifi.Name, "rx-gro", true); err != nil {
		t.Fatal(err)
	}
	return ifi
}

func deleteLink(t *testing.T, ifi *net.Interface) {
	t.Helper()
	link, err := netlink.LinkByIndex(ifi.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
}

// A user who cannot have its processors disturbs nobody.
func TestFailedJoin(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	before := settingsOf(t, ifi)
	bad := []int{1 << 9}
	if _, err := dedicate(dir, ifi, bad); err == nil {
		t.Fatal("no error without the processor")
	}
	checkSettings(t, ifi, before, "the first could not join")
	checkFiles(t, dir, 0)
	undo := mustDedicate(t, dir, ifi)
	if _, err := dedicate(dir, ifi, bad); err == nil {
		t.Fatal("no error without the processor")
	}
	checkSettings(t, ifi, applied, "the second could not join")
	pids, err := Threads(ifi)
	if err != nil || len(pids) == 0 {
		t.Fatalf("threads %v, %v", pids, err)
	}
	for _, pid := range pids {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil || set.Count() != 1 || !set.IsSet(0) {
			t.Errorf("thread %d may run on %d processors: %v", pid, set.Count(), err)
		}
	}
	undo()
	checkSettings(t, ifi, before, "left")
}

// If restoring fails, the original settings stay in the file, and the error names the file.
func TestNotRestored(t *testing.T) {
	ifi, dir := veth(t), registryDir(t)
	p := startProcess(t, dir)
	p.do("join")
	p.kill()
	change(t, dir, func(rec *record) { rec.Saved.Threaded = "7" })
	undo, err := dedicate(dir, ifi, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	err = undo()
	if err == nil {
		t.Fatal("no error, although the value is wrong")
	}
	for _, want := range []string{"restore left", `write "7"`, dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	checkFiles(t, dir, 1)
}

// onlyFile returns the one file of a registry.
func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("the registry has %v, want one file: %v", files, err)
	}
	return filepath.Join(dir, files[0].Name())
}
