package protocol

import "encoding/binary"

// AgreeStep tells the messages of an agreement apart (package agree).
type AgreeStep uint8

// Steps.
const (
	AgreeAsk     AgreeStep = 1 + iota // Ballot, Dead: I lead; what do you know?
	AgreeState                        // Flags, Dead, Value: what I know, and what I have accepted
	AgreePropose                      // Ballot, Value
	AgreeAccept                       // Ballot
	AgreeCommit                       // Value: it is decided
	AgreeGone                         // I have closed the communicator
)

// MaxAgree is the largest communicator that can agree: two sets of ranks fit one
// message.
const MaxAgree = 64 * maxWords

const maxWords = 256

// Agree is what a MsgAgree carries.
type Agree struct {
	Step   AgreeStep
	Ballot uint64
	Called bool        // the user of this rank has come
	Hurry  bool        // it waits no longer for those who have not
	Dead   []uint64    // ranks of the communicator that are lost, as bits
	Value  *AgreeValue // nil: none
}

// AgreeValue is what ranks agree on.
type AgreeValue struct {
	Ballot uint64   // under which it was accepted
	Why    uint8    // 0: Ranks go on together. Otherwise why they do not, and because of whom
	ID     uint32   // of the communicator to make; 0: none
	Ranks  []uint64 // of the communicator, as bits
}

func appendAgree(b []byte, a *Agree) []byte {
	b = append(b, byte(a.Step))
	b = binary.LittleEndian.AppendUint64(b, a.Ballot)
	b = append(b, b2u(a.Called), b2u(a.Hurry))
	b = appendWords(b, a.Dead)
	b = append(b, b2u(a.Value != nil))
	if v := a.Value; v != nil {
		b = binary.LittleEndian.AppendUint64(b, v.Ballot)
		b = append(b, v.Why)
		b = binary.LittleEndian.AppendUint32(b, v.ID)
		b = appendWords(b, v.Ranks)
	}
	return b
}

func appendWords(b []byte, words []uint64) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(words)))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func (d *decoder) agree() *Agree {
	a := &Agree{Step: AgreeStep(d.u8()), Ballot: d.u64(), Called: d.flag(), Hurry: d.flag(), Dead: d.words()}
	if d.flag() {
		a.Value = &AgreeValue{Ballot: d.u64(), Why: d.u8(), ID: d.u32(), Ranks: d.words()}
	}
	needs := a.Step == AgreePropose || a.Step == AgreeCommit
	d.bad = d.bad || a.Step < AgreeAsk || a.Step > AgreeGone || (needs && a.Value == nil)
	return a
}

func (d *decoder) words() []uint64 {
	n := d.count(8, maxWords)
	if n == 0 {
		return nil
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = d.u64()
	}
	return words
}
