package settings

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Key reads the job's key from ALLCAST_KEY, or from the file that ALLCAST_KEY_FILE names. It is nil if
// neither is set. No error contains any part of it.
func Key(env Env) ([]byte, error) {
	text, inEnv := env(KeyVar)
	path, inFile := env(KeyFileVar)
	switch {
	case inEnv && inFile:
		return nil, errors.New("ALLCAST_KEY and ALLCAST_KEY_FILE are both set; unset one of them")
	case inEnv:
		return parseKey(KeyVar, text)
	case inFile:
		return KeyFile(KeyFileVar, path)
	}
	return nil, nil
}

// SiteKey reads the key of the operator's aggregators from the file that ALLCAST_SITE_KEY_FILE names. It is nil if that
// is not set.
func SiteKey(env Env) ([]byte, error) {
	path := env.Get(SiteKeyFileVar)
	if path == "" {
		return nil, nil
	}
	return KeyFile(SiteKeyFileVar, path)
}

// KeyFile reads a key from a file. No error contains any part of it, and all begin with the name of the setting.
func KeyFile(setting, path string) ([]byte, error) {
	text, err := readKey(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return parseKey("the file of "+setting, text)
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10)) // the path may lead to a device
	return string(b), err
}

func parseKey(where, text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	key, err := hex.DecodeString(text)
	switch {
	case err != nil: // package hex quotes the input
		return nil, fmt.Errorf("%s: want an even number of hex digits, such as \"openssl rand -hex 32\" prints", where)
	case len(key) < minKey:
		return nil, fmt.Errorf("%s has %d hex digits: want at least %d", where, len(text), 2*minKey)
	}
	return key, nil
}
