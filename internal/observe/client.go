package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// maxAnswer limits the size of an answer.
const maxAnswer = 64 << 20

// Ask asks a process for its State, with its last events.
func Ask(ctx context.Context, a Addr, events int) (*State, error) {
	t := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, a.Network, a.Address)
		},
	}
	defer t.CloseIdleConnections()
	host := a.Address
	if a.Network == "unix" {
		host = "localhost"
	}
	url := "http://" + host + Path + "?events=" + strconv.Itoa(events)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s: is it a rank of Allcast?", resp.Status)
	}
	s := &State{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(s); err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return s, nil
}
