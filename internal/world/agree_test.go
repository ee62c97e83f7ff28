package world

import "testing"

// All ranks cut chunks alike, even if their networks have different packet sizes.
func TestAgreePackets(t *testing.T) {
	for _, c := range []struct{ asked, chunk int }{{0, 1456}, {1000, 1000}, {4000, 4000}, {60_000, 60_000}} {
		cards := []card{{Addr: "a", Chunk: 8956, Asked: c.asked}, {Addr: "b", Chunk: 1456, Asked: c.asked}}
		_, chunk, packet, why, err := agree(cards, 65_000)
		if err != nil || why != "" || chunk != c.chunk || packet != 1456 {
			t.Errorf("asked for %d: chunks of %d in packets of %d, %q, %v", c.asked, chunk, packet, why, err)
		}
	}
}
