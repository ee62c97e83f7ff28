package aggregate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/units"
)

// Limits of what an authenticated peer can make this process hold.
const (
	maxMessage = 4 << 20  // the tree and the addresses of 65,535 ranks
	maxSmall   = 16 << 10 // more than a reason in which JSON escapes each byte by 2
	maxWhy     = 4 << 10
	maxName    = 64
)

// Kinds of messages.
const (
	msgAttach = "attach"
	msgStatus = "status"
	msgPing   = "ping"
	msgPong   = "pong"
	msgDetach = "detach"
)

// A message is an object in JSON. Its length precedes it, as 4 bytes in little endian.
type message struct {
	Kind   string  `json:"kind"`
	Attach *attach `json:"attach,omitempty"`
	Status *status `json:"status,omitempty"`
	Why    string  `json:"why,omitempty"` // of detach
}

// attach describes a job and one of its children to an aggregator.
type attach struct {
	Job     string   `json:"job"`
	Session uint32   `json:"session"`
	Secret  []byte   `json:"secret"`
	Tree    string   `json:"tree"`
	Size    int      `json:"size"`
	Node    int      `json:"node"`  // the aggregator that receives this message
	Child   int      `json:"child"` // position of the sender among the aggregator's children
	Chunk   int      `json:"chunk"`
	Window  uint32   `json:"window"` // largest window that the sender can use
	Ranks   []member `json:"ranks"`  // the sender, or all ranks below it
}

// A member is the data address of a rank.
type member struct {
	Rank int            `json:"rank"`
	Addr netip.AddrPort `json:"addr"`
}

// status is the state of a job as an aggregator sees it.
type status struct {
	Window  uint32 `json:"window"`            // 0: the aggregators cannot be used
	Why     string `json:"why,omitempty"`     // reason why not
	Pending bool   `json:"pending,omitempty"` // other children have not attached yet, but may soon
}

var errMessage = errors.New("invalid message")

// readMessage reads a message of at most limit bytes.
func readMessage(r io.Reader, limit int) (*message, error) {
	size, err := readSize(r, limit)
	if err != nil {
		return nil, err
	}
	return readBody(r, size)
}

// readSize reads the length of a message.
func readSize(r io.Reader, limit int) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > uint32(limit) {
		return 0, fmt.Errorf("%w of %d bytes: at most %d are allowed", errMessage, n, limit)
	}
	return int(n), nil
}

// readBody reads the rest of a message.
func readBody(r io.Reader, size int) (*message, error) {
	var text bytes.Buffer // grows as bytes arrive, so that a false length costs no memory
	if _, err := io.CopyN(&text, r, int64(size)); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	return parseMessage(text.Bytes())
}

func parseMessage(text []byte) (*message, error) {
	m := &message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	switch {
	case m.Kind == msgAttach && m.Attach == nil, m.Kind == msgStatus && m.Status == nil:
		return nil, fmt.Errorf("%w: %s without its contents", errMessage, m.Kind)
	case m.Status != nil && len(m.Status.Why) > maxWhy, len(m.Why) > maxWhy:
		return nil, fmt.Errorf("%w: a reason of more than %d bytes", errMessage, maxWhy)
	}
	m.Why = units.Printable(m.Why)
	if m.Status != nil {
		m.Status.Why = units.Printable(m.Status.Why)
	}
	return m, nil
}

// writeMessage writes a message within the given time.
func writeMessage(c net.Conn, m *message, within time.Duration) error {
	text := bytes.NewBuffer(make([]byte, 4))
	enc := json.NewEncoder(text)
	enc.SetEscapeHTML(false) // a tree is full of >, which would take 6 bytes
	if err := enc.Encode(m); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(text.Bytes(), uint32(text.Len()-4))
	if err := c.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := c.Write(text.Bytes())
	return err
}

// clip bounds the length of a reason, and replaces control characters.
func clip(why string) string { return clipTo(why, maxWhy) }

func clipTo(why string, limit int) string {
	why = units.Printable(why) // may be longer: an invalid byte becomes one of 3
	return strings.ToValidUTF8(why[:min(len(why), limit)], "")
}

// check reports what is wrong with an attach message, and returns its tree.
func (a *attach) check() (*inc.Tree, error) {
	switch {
	case a.Session == 0:
		return nil, errors.New("session 0 is invalid")
	case len(a.Job) > maxName:
		return nil, fmt.Errorf("the name of the job has %d bytes: at most %d are allowed", len(a.Job), maxName)
	case strings.ContainsFunc(a.Job, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, fmt.Errorf("the name of the job, %+q, has characters other than printable ones of ASCII", a.Job)
	case len(a.Secret) < MinKey || len(a.Secret) > maxName:
		return nil, fmt.Errorf("a secret of %d bytes: want %d to %d", len(a.Secret), MinKey, maxName)
	case a.Chunk < align || a.Chunk > MaxChunk || a.Chunk%align != 0:
		return nil, fmt.Errorf("chunks of %d bytes: want a multiple of %d up to %d", a.Chunk, align, MaxChunk)
	case a.Window == 0:
		return nil, errors.New("a window of 0 is invalid")
	}
	tree, err := inc.ParseTree(a.Tree, a.Size)
	if err != nil {
		return nil, err
	}
	if a.Node < 0 || a.Node >= len(tree.Nodes) || a.Child < 0 || a.Child >= len(tree.Nodes[a.Node].Children) {
		return nil, fmt.Errorf("the tree has no child %d of aggregator %d", a.Child, a.Node)
	}
	return tree, nil
}
