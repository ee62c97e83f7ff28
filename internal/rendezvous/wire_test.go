package rendezvous

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

func TestRankList(t *testing.T) {
	var many []int
	for i := range 40 {
		many = append(many, 2*i)
	}
	for want, ranks := range map[string][]int{
		"":           nil,
		"3, 5":       {3, 5},
		"3, 4":       {3, 4},
		"1-3, 7-9":   {1, 2, 3, 7, 8, 9},
		"0, 2, 3, 5": {0, 2, 3, 5},
		"0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, ... (40 in all)": many,
	} {
		if got := rankList(ranks); got != want {
			t.Errorf("%v: %q, want %q", ranks, got, want)
		}
	}
}

// FuzzDecode gives bytes to every decoder. Bytes that a decoder accepts must equal its encoder's output.
func FuzzDecode(f *testing.F) {
	const size = 3
	someEntry := newEntry(netip.MustParseAddrPort("[fe80::1%eth0]:20000"))
	v := verdict{kind: ErrTimeout, keys: true, size: size, ranks: []int{1, 2}, text: "two ranks"}
	for _, b := range [][]byte{
		hello{1, size, 7, "v1", "p"}.frame(), welcomeFrame([seedSize]byte{1}, entry{}),
		welcomeFrame([seedSize]byte{2}, someEntry), offerFrame(someEntry), v.frame(), leaveFrame(leftDeadline),
		relayFrame(2, frame{frameLeave, []byte{1}}), relayFrame(2, textFrame(frameLost, "gone")),
		relayFrame(2, arrival{addr: "127.0.0.1:9", hello: hello{2, size, 7, "v1", "p"}, secure: true}.frame()),
		blobFrame(7, []byte("blob")), resultFrame(7, joinBlobs([][]byte{{1}, nil, {2, 3}})), []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		f.Add(b)
	}
	lims := []limits{fromChild, fromParent(size), helloLimits}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, lim := range lims {
			fr, err := readFrame(bytes.NewReader(b), lim)
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				continue
			}
			if again := reencode(fr, size); again != nil && !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("read %x\nwrote %x", b, again)
			}
		}
	})
}

// reencode returns nil if the payload does not decode.
func reencode(f frame, size int) []byte {
	switch f.typ {
	case frameHello:
		if h, err := decodeHello(f.payload); err == nil {
			return h.frame()
		}
	case frameVerdict:
		if v, err := decodeVerdict(f.payload); err == nil {
			_ = v.err().Error()
			// Bytes that are not text are replaced.
			if frame := v.frame(); bytes.HasSuffix(f.payload, []byte(v.text)) && f.payload[1] < 2 {
				return frame
			}
		}
	case frameLeave:
		if r, err := decodeLeave(f.payload); err == nil {
			return leaveFrame(r)
		}
	case frameRelay:
		rank, f, err := decodeRelay(f.payload)
		if a, bad := decodeArrival(f.payload); err == nil && f.typ == frameArrival && bad == nil {
			if len(a.addr) == int(f.payload[1]) && bytes.HasPrefix(f.payload[2:], []byte(a.addr)) {
				f = a.frame()
			}
		}
		if err == nil {
			return relayFrame(rank, f)
		}
	case frameBlob:
		if seq, blob, err := decodeBlob(f.payload); err == nil {
			return blobFrame(seq, blob)
		}
	case frameResult:
		seq, result, err := decodeResult(f.payload)
		if blobs, bad := splitBlobs(result, size); err == nil && bad == nil {
			return resultFrame(seq, joinBlobs(blobs))
		}
	case frameWelcome:
		if seed, from, err := decodeWelcome(f.payload); err == nil {
			return welcomeFrame(seed, from)
		}
	case frameOffer:
		if e, err := parseEntry(f.payload); err == nil {
			return offerFrame(e)
		}
	}
	return nil
}

// FuzzEntry gives bytes of a store to the decoder. An entry that it accepts survives encoding.
func FuzzEntry(f *testing.F) {
	good, err := newEntry(netip.MustParseAddrPort("[::1]:20000")).encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range []string{string(good), "", "{}", `{"addr":"x:1","incarnation":"00"}`, `{"addr":"1.2.3.4:0"}`} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatal(err)
			}
			return
		}
		again, err := e.encode()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := decodeEntry(again); err != nil || same != e {
			t.Fatalf("%+v, %+v, %v", e, same, err)
		}
	})
}

func TestReadFrameLimits(t *testing.T) {
	long := blobFrame(1, make([]byte, MaxBlob+1))
	if _, err := readFrame(bytes.NewReader(long), fromChild); !errors.Is(err, ErrProtocol) {
		t.Error("too long a blob:", err)
	}
	cut := bytes.NewReader(long[:len(long)-MaxBlob])
	if _, err := readFrame(cut, limits{frameBlob: 1 << 30}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("cut blob:", err)
	}
	if _, err := readFrame(bytes.NewReader(leaveFrame(leftClosed)), limits{}); !errors.Is(err, ErrProtocol) {
		t.Error("type that is not allowed:", err)
	}
}

func TestAuth(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	for _, c := range []struct {
		name       string
		root, rank []byte
		good       bool
	}{
		{"none", nil, nil, true},
		{"same", a, bytes.Clone(a), true},
		{"different", a, b, false},
		{"root only", a, nil, false},
		{"rank only", nil, a, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := net.Pipe()
			got := make(chan error, 1)
			go func() {
				_, err := authParent(x, c.root, false, incarnation{})
				got <- err
				_ = x.Close()
			}()
			_, rank := authChild(y, c.rank, false, 0, incarnation{})
			_ = y.Close()
			root := <-got
			if c.good && (root != nil || rank != nil) {
				t.Errorf("root %v, rank %v", root, rank)
			}
			if !c.good && (!errors.Is(root, ErrKey) || !errors.Is(rank, ErrKey)) {
				t.Errorf("root %v, rank %v", root, rank)
			}
		})
	}
}

// Rank 0 does not accept its own proof when an attacker reflects it.
func TestAuthReflection(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 16)
	x, y := net.Pipe()
	got := make(chan error, 1)
	go func() {
		_, err := authParent(x, key, false, incarnation{})
		got <- err
	}()
	p := newPreamble(key, false, incarnation{})
	if _, err := y.Write(p[:]); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, preambleSize+proofSize)
	if _, err := io.ReadFull(y, reply); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Write(reply[preambleSize:]); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, ErrKey) {
		t.Error(err)
	}
}
