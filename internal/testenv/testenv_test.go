package testenv

import (
	"strings"
	"testing"
	"time"
)

func TestSeed(t *testing.T) {
	t.Setenv(seedVar, "")
	if a, b := Seed(t), Seed(t); a != b {
		t.Errorf("seeds %d and %d without %s: want the same", a, b, seedVar)
	}
	t.Setenv(seedVar, "18446744073709551615")
	if got := Seed(t); got != 1<<64-1 {
		t.Errorf("got seed %d, want that of %s", got, seedVar)
	}
}

func TestReplay(t *testing.T) {
	const want = `ALLCAST_TEST_SEED=7 go test -count=1 -run '^TestA$/^b\.c$' github.com/allcast/allcast/internal/testenv`
	if got := strings.Replace(replay(7, "TestA/b.c"), "-race ", "", 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A goroutine that ends late is no leak. One that does not end is.
func TestLeaked(t *testing.T) {
	release := make(chan struct{})
	go func() { <-release }()
	if err := leaked(0); err == nil || !strings.Contains(err.Error(), "TestLeaked") {
		t.Errorf("got %v, want an error that shows the goroutine", err)
	}
	go func() {
		time.Sleep(time.Second) // longer than goleak waits
		close(release)
	}()
	if err := leaked(Patience); err != nil {
		t.Error(err)
	}
}
