package wire

import "encoding/binary"

// AgreeStep is the kind of an agreement message (package agree).
type AgreeStep uint8

// Steps of an agreement, with the fields that each step uses.
const (
	AgreeAsk     AgreeStep = 1 + iota // Ballot, Dead: the sender leads and asks for the state of the receiver
	AgreeState                        // Called, Hurry, Dead, Value: what the sender knows and has accepted
	AgreePropose                      // Ballot, Value
	AgreeAccept                       // Ballot
	AgreeCommit                       // Value: the decision
	AgreeGone                         // the sender has closed the communicator
)

// MaxAgree is the size of the largest communicator that can agree: one message holds two sets of
// ranks.
const MaxAgree = 64 * maxWords

const maxWords = 256

// Agree is the body of a MsgAgree.
type Agree struct {
	Step   AgreeStep
	Ballot uint64
	Called bool        // whether the user of this rank has made the call
	Hurry  bool        // whether this rank has stopped waiting for ranks that have not
	Dead   []uint64    // set of lost ranks of the communicator
	Value  *AgreeValue // accepted value, or nil
}

// AgreeValue is the outcome that ranks agree on.
type AgreeValue struct {
	Ballot uint64   // ballot under which the value was accepted
	Why    uint8    // 0 if Ranks continue together; otherwise the reason why Ranks prevent that
	ID     uint32   // id of the new communicator; 0 for none
	Ranks  []uint64 // set of ranks of the communicator
}

func appendAgree(b []byte, a *Agree) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, byte(a.Step)), a.Ballot)
	b = appendWords(append(b, b2u(a.Called), b2u(a.Hurry)), a.Dead)
	b = append(b, b2u(a.Value != nil))
	if v := a.Value; v != nil {
		b = append(binary.LittleEndian.AppendUint64(b, v.Ballot), v.Why)
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
	words := list[uint64](d, 8, maxWords)
	for i := range words {
		words[i] = d.u64()
	}
	return words
}
