package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// doors are the listeners of rank 0.
type doors struct {
	listeners []net.Listener
	note      string // for the error, if nobody finds them
}

func (d doors) close() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
}

// open listens where others look for rank 0, and nowhere else if it can: on the
// addresses of the host if they are this machine's. They are not behind a
// Kubernetes service or where only others can resolve the name; then on all.
func open(ctx context.Context, cfg Config) (doors, error) {
	if cfg.Listener != nil {
		return doors{listeners: []net.Listener{cfg.Listener}}, nil
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return doors{}, err
	}
	addrs := resolve(ctx, host)
	// Debian gives a machine's own name 127.0.1.1, where other machines do not come.
	if !isLoopbackName(host) {
		for _, a := range addrs {
			if a.IsLoopback() {
				addrs = nil
				break
			}
		}
	}
	var d doors
	for _, a := range addrs {
		l, err := listen(ctx, cfg, net.JoinHostPort(a.String(), port))
		switch {
		case err == nil:
			d.listeners = append(d.listeners, l)
		case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		default:
			d.close()
			return doors{}, err
		}
	}
	if len(d.listeners) > 0 {
		return d, nil
	}
	l, err := listen(ctx, cfg, ":"+port)
	if err != nil {
		return doors{}, err
	}
	d.listeners = append(d.listeners, l)
	if len(addrs) > 0 {
		d.note = fmt.Sprintf("%s is no address of rank 0's machine, so it listened on all of its addresses", host)
	}
	return d, nil
}

// isLoopbackName reports whether host means loopback on purpose.
func isLoopbackName(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasPrefix(host, "localhost.") ||
		host == "ip6-localhost"
}

func resolve(ctx context.Context, host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the others will say it, if they cannot either
	}
	var addrs []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, a := range found {
		if a = a.Unmap(); !seen[a] {
			seen[a] = true
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// listen tries again for a moment when the address is in use: a rank that dials
// a local port before anybody listens can, for that moment, connect to itself.
func listen(ctx context.Context, cfg Config, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, cfg.Timeout))
	defer cancel()
	for {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("rendezvous: rank 0 cannot listen on %s: %w", addr, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("rendezvous: rank 0 cannot listen on %s: another process does, maybe another job or "+
				"another rank 0; set MASTER_PORT to a free port, the same on all ranks: %w", addr, err)
		}
	}
}
