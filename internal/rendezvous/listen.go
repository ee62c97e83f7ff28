package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/inherit"
)

// open listens for the children. If the ranks meet at rank 0, it listens on the addresses of the host by which the
// other ranks look for rank 0. Where these are not addresses of this machine, as behind a Kubernetes service, or
// where only other machines can resolve the name, it listens on all addresses.
//
// The note is a hint for the error if ranks are missing.
func open(ctx context.Context, cfg Config) (listeners []net.Listener, note string, err error) {
	if cfg.Listener != nil {
		return []net.Listener{cfg.Listener}, "", nil
	}
	if cfg.Store != nil {
		l, err := listen(ctx, cfg, netip.AddrPortFrom(cfg.Local, 0).String())
		return []net.Listener{l}, "", err
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, "", err
	}
	addrs, err := resolve(ctx, host)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound && !cfg.LateNames {
		return nil, "", fmt.Errorf("rendezvous: rank 0 cannot resolve the name of its own machine: %w; "+
			"set MASTER_ADDR to a name or an address of rank 0's machine that all machines know", err)
	}
	if err != nil {
		note = fmt.Sprintf("rank 0 cannot resolve %s: %v", host, err)
	}
	// Debian maps a machine's own name to 127.0.1.1, which other machines cannot reach.
	if !isLoopbackName(host) && slices.ContainsFunc(addrs, netip.Addr.IsLoopback) {
		addrs = nil
	}
	for _, a := range addrs {
		l, err := listen(ctx, cfg, net.JoinHostPort(a.String(), port))
		switch {
		case err == nil:
			listeners = append(listeners, l)
		case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		default:
			closeAll(listeners)
			return nil, "", err
		}
	}
	if len(listeners) > 0 {
		return listeners, "", nil
	}
	if len(addrs) > 0 {
		note = fmt.Sprintf("%s is not an address of rank 0's machine, so rank 0 listened on all of its addresses", host)
	}
	l, err := listen(ctx, cfg, ":"+port)
	return []net.Listener{l}, note, err
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
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

func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, a := range found {
		found[i] = a.Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

// listen retries briefly while the address is in use, because a rank that dials a local port on which no
// process listens can briefly connect to itself.
func listen(ctx context.Context, cfg Config, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, cfg.JoinTimeout))
	defer cancel()
	for {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err == nil {
			inherit.Conn(l)
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("rendezvous: rank %d cannot listen on %s: %w", cfg.Rank, addr, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("rendezvous: rank 0 cannot listen on %s: another process does, perhaps another job or "+
				"another rank 0; set MASTER_PORT to a free port, the same on all ranks: %w", addr, err)
		}
	}
}
