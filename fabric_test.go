package allcast_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

func TestFabricOption(t *testing.T) {
	_, err := allcast.Join(t.Context(), allcast.Options{Size: 1, Fabric: "pigeons"})
	if !errors.Is(err, allcast.ErrOptions) || !strings.Contains(err.Error(), "ip or verbs") {
		t.Errorf("got %v", err)
	}
	key := []byte("0123456789abcdef")
	_, err = allcast.Join(t.Context(), allcast.Options{Size: 1, Fabric: "verbs", Secure: true, Key: key})
	if !errors.Is(err, allcast.ErrOptions) {
		t.Errorf("got %v", err)
	}
	t.Setenv("ALLCAST_FABRIC", "ip")
	c, err := allcast.Join(t.Context(), allcast.Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.Fabric() != "ip" {
		t.Errorf("fabric %s", c.Fabric())
	}
	b, err := c.Alloc(1000)
	if err != nil || len(b) != 1000 {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	if err := c.Broadcast(t.Context(), b, 0); err != nil {
		t.Error(err)
	}
	if err := c.Free(b); err != nil {
		t.Error(err)
	}
	if _, err := c.Alloc(-1); !errors.Is(err, allcast.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
