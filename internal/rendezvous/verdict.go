package rendezvous

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// verdict is the reason why there is no job. Rank 0 finds it and tells all ranks. A rank that loses its parent
// finds one for the ranks below it.
type verdict struct {
	kind  error // one of kinds
	keys  bool  // rank 0 has refused connections for their key
	size  int
	ranks []int
	text  string
	cause error // known only on the rank that found the verdict
}

// unable is the verdict of a rank that cannot accept others because of a limit of its own.
func unable(rank int, err error) *verdict {
	return &verdict{kind: ErrLost, ranks: []int{rank}, text: fmt.Sprintf("rank %d: %v", rank, err), cause: err}
}

// kinds lists the kinds of verdicts. On the wire, a kind is its position, from 1.
var kinds = []error{ErrTimeout, ErrLost, ErrVersion, ErrProgram, ErrDuplicate, ErrSize, ErrSecure}

// err returns the verdict as an error, which is the same on all ranks except for the cause.
func (v *verdict) err() error {
	causes := []error{v.kind}
	if v.cause != nil {
		causes = append(causes, v.cause)
	}
	if v.keys {
		causes = append(causes, ErrKey)
	}
	return &Error{Ranks: v.ranks, text: v.text, causes: causes}
}

const verdictHeader = 10

func (v *verdict) frame() []byte {
	text := v.text[:min(len(v.text), maxText)]
	b := newFrame(frameVerdict, verdictHeader+4*len(v.ranks)+len(text))
	b = append(b, byte(1+slices.Index(kinds, v.kind)), 0)
	if v.keys {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(v.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v.ranks)))
	for _, r := range v.ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return append(b, text...)
}

func decodeVerdict(p []byte) (verdict, error) {
	bad := fmt.Errorf("%w: verdict", ErrProtocol)
	if len(p) < verdictHeader {
		return verdict{}, bad
	}
	kind, keys := int(p[0])-1, p[1] == 1
	size, n := binary.LittleEndian.Uint32(p[2:]), binary.LittleEndian.Uint32(p[6:])
	p = p[verdictHeader:]
	if kind < 0 || kind >= len(kinds) || size > settings.MaxSize || int64(n) > int64(len(p)/4) {
		return verdict{}, bad
	}
	v := verdict{kind: kinds[kind], keys: keys, size: int(size)}
	for ; n > 0; n-- {
		// A conflict may quote a number that is not a rank of this job.
		r := binary.LittleEndian.Uint32(p)
		if r > math.MaxInt32 {
			return verdict{}, bad
		}
		v.ranks = append(v.ranks, int(r))
		p = p[4:]
	}
	if len(p) > maxText {
		return verdict{}, bad
	}
	v.text = units.Printable(string(p))
	return v, nil
}
