package world

import "testing"

// All ranks cut chunks alike, even if their networks have different packet sizes.
func TestAgreePackets(t *testing.T) {
	for _, c := range []struct{ asked, chunk int }{{0, 1456}, {1000, 1000}, {4000, 4000}, {60_000, 60_000}} {
		cards := []card{{Addr: "a:1", Chunk: 8956, Asked: c.asked}, {Addr: "b:1", Chunk: 1456, Asked: c.asked}}
		got, err := agree(cards, 65_000)
		if err != nil || got.NoMcast != "" || got.Chunk != c.chunk || got.Packet != 1456 {
			t.Errorf("asked for %d: %+v, %v", c.asked, got, err)
		}
	}
}
