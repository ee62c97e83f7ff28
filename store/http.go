package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// MaxValue is the largest value, in bytes, that HTTP and a Server handle. An entry of a rank has about 100.
const MaxValue = 64 << 10

// waitTime is how long a request waits for a value. Proxies end longer ones.
const waitTime = 20 * time.Second

// HTTP returns a store on the server at base, such as "https://head.example.org:8080/jobs". The server runs a
// Server. The token, unless it is empty, must be that of the server. Use https if the network is not trusted,
// because the token is part of each request.
func HTTP(base, token string) Store {
	return client{base: strings.TrimSuffix(base, "/"), token: token}
}

type client struct{ base, token string }

func (c client) do(ctx context.Context, method, key string, value []byte) (status int, body []byte, err error) {
	where := c.base + "/" + base64.RawURLEncoding.EncodeToString([]byte(key))
	req, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(value))
	if err != nil {
		return 0, nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, MaxValue+1))
	if err == nil && len(body) > MaxValue {
		err = fmt.Errorf("store: %s: more than %d bytes", key, MaxValue)
	}
	return resp.StatusCode, body, err
}

func (c client) Set(ctx context.Context, key string, value []byte) error {
	status, body, err := c.do(ctx, http.MethodPut, key, value)
	if err == nil && status != http.StatusNoContent {
		err = statusError(key, status, body)
	}
	return err
}

func (c client) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		status, body, err := c.do(ctx, http.MethodGet, key, nil)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusOK:
			return body, nil
		case status != http.StatusNotFound: // the server has waited for a value
			return nil, statusError(key, status, body)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
	}
}

func statusError(key string, status int, body []byte) error {
	text := strings.TrimSpace(string(body[:min(len(body), 200)]))
	if text == "" {
		text = http.StatusText(status)
	}
	return errors.New("store: " + key + ": the server says " + fmt.Sprintf("%d %q", status, text))
}
