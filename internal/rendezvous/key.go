package rendezvous

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Key reads the job's key from ALLCAST_KEY or from the file that
// ALLCAST_KEY_FILE names: 32 or more hex digits. Without either it is nil. No
// error contains any of it.
func Key(lookup func(string) (string, bool)) ([]byte, error) {
	text, inEnv := lookup("ALLCAST_KEY")
	path, inFile := lookup("ALLCAST_KEY_FILE")
	switch {
	case inEnv && inFile:
		return nil, errors.New("rendezvous: ALLCAST_KEY and ALLCAST_KEY_FILE are both set; unset one of them")
	case inEnv:
		return parseKey("ALLCAST_KEY", text)
	case inFile:
		text, err := readKey(path)
		if err != nil {
			return nil, fmt.Errorf("rendezvous: ALLCAST_KEY_FILE: %w", err)
		}
		return parseKey("the file of ALLCAST_KEY_FILE", text)
	}
	return nil, nil
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10)) // whatever the path leads to
	return string(b), err
}

func parseKey(where, text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	key, err := hex.DecodeString(text)
	switch {
	case err != nil: // hex's errors quote the input
		return nil, fmt.Errorf("%w: %s is not an even number of hex digits", ErrKey, where)
	case len(text) < 32:
		return nil, fmt.Errorf("%w: %s has %d hex digits, at least 32 are needed", ErrKey, where, len(text))
	}
	return key, nil
}
