package allcast

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

func TestParseTuning(t *testing.T) {
	got, err := parseTuning("allgather:4K-inf:mcast,ring; broadcast:mcast;;allreduce:0-64K:ring")
	want := tuning{
		{wire.Allgather, 4096, math.MaxInt64, []string{"mcast", "ring"}},
		{wire.Broadcast, 0, math.MaxInt64, []string{"mcast"}},
		{wire.Allreduce, 0, 65536, []string{"ring"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for bad, says := range map[string]string{
		"gather:mcast":            "allgather", // lists what there is
		"allgather:tree":          "bruck",
		"allgather":               "operation:algorithm",
		"allgather:1-2-3:mcast":   "2-3",
		"allgather:9K-4K:mcast":   "larger",
		"allgather:x-inf:mcast":   "x",
		"allgather:4K:mcast":      "from-to",
		"allreduce:mcast":         "recursive-halving",
		"barrier:1-2:mcast:extra": "operation:algorithm",
	} {
		if _, err := parseTuning(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v: want something about %q", bad, err, says)
		}
	}
}

func TestBadVariables(t *testing.T) {
	base := map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234"}
	for name, value := range map[string]string{
		"RANK": "two", "WORLD_SIZE": "0", "MASTER_PORT": "http", "ALLCAST_TIMEOUT": "10", "ALLCAST_DEBUG": "loud",
		"ALLCAST_FAULT": "drop=2", "ALLCAST_TUNING": "x", "ALLCAST_KEY": "short",
	} {
		_, _, err := Options{}.settle(func(v string) (string, bool) {
			if v == name {
				return value, true
			}
			s, ok := base[v]
			return s, ok
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v: want an error that names it", name, value, err)
		}
	}
	_, _, err := Options{}.settle(func(string) (string, bool) { return "", false })
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "allcast run") {
		t.Errorf("no variables: %v", err)
	}
}

func TestTypeOf(t *testing.T) {
	type celsius float32
	type kind uint16
	for _, tt := range []struct{ got, want DataType }{
		{TypeOf[float32](), Float32},
		{TypeOf[float64](), Float64},
		{TypeOf[celsius](), Float32},
		{TypeOf[int8](), Int8},
		{TypeOf[int16](), Int16},
		{TypeOf[int32](), Int32},
		{TypeOf[int64](), Int64},
		{TypeOf[uint8](), Uint8},
		{TypeOf[kind](), Uint16},
		{TypeOf[uint32](), Uint32},
		{TypeOf[uint64](), Uint64},
	} {
		if tt.got != tt.want {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}
