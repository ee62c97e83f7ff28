//go:build ignore

// The receive path of Allcast in the kernel. It copies the chunks of multicast datagrams to
// their places in the receive buffer, and wakes the process when all have arrived. doc.go
// explains why that is safe.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "place.h"

// From enum tcx_action_base, which older headers lack.
#define TCX_NEXT -1
#define TCX_DROP 2

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PLACEMENTS);
	__type(key, __u32);
	__type(value, struct placement);
} placements SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WORDS);
	__type(key, __u32);
	__type(value, struct word);
} words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BLOCKS);
	__type(key, __u32);
	__type(value, struct block);
} blocks SEC(".maps");

// Packets that a socket's filter took, by subgroup. The last entries are settings and the
// counters of fault.h.
#define SHARED (COUNTERS - 2) // not 0: other processes need our packets too
#define WHOLE (COUNTERS - 4) // packet size of super-packets that are one chunk each
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct region {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, VALUE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, REGIONS);
	__type(key, __u32);
	__array(values, struct region);
} regions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

// The process sets these before it loads a program.
const volatile __u16 own_port; // source port of this process, in network order
const volatile __u8 own_addr[16];
const volatile __u8 v6;
const volatile __u8 exact; // own_port and own_addr are known
const volatile __u32 group; // index of the socket's counter
const volatile __u32 max_chunk = MAX_DATAGRAM; // bytes per chunk
const volatile __u8 second; // another program saw the packet first

enum verdict {
	TAKEN, // no other receiver needs the datagram
	UNKNOWN, // the datagram belongs to no open operation
	HELD, // the process must place the datagram
};

struct parsed {
	__u32 at, end; // bounds of the payload
	__u16 port, from;
};

struct pieces {
	void *ctx;
	__u8 *value;
	__u32 at; // offset of the next piece in the packet
	__u32 to; // offset of the next piece in the entry
	__u32 n; // bytes left
};

struct scan {
	void *ctx;
	__u32 at; // offset of the next datagram
	__u32 end;
	__u32 seg;
	__u32 left; // datagrams not taken
	__u16 port;
	__u16 from;
};

static __always_inline struct placement *find(__u64 token, __u16 port)
{
#pragma unroll
	for (__u32 i = 0; i < PROBES; i++) {
		__u32 k = (__u32)(token + i) & (PLACEMENTS - 1);
		struct placement *l = bpf_map_lookup_elem(&placements, &k);
		if (l && l->token == token && l->port == port)
			return l;
	}
	return 0;
}

// is reports whether a counter is not 0.
static __always_inline int is(__u32 counter)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &counter);
	return n && *n;
}

struct search {
	__u32 first;
	__u32 lo, hi;
	__u32 psn;
};

// halve does one step of a binary search over blocks.
static long halve(__u32 i, void *arg)
{
	struct search *s = arg;
	if (s->hi - s->lo <= 1)
		return 1;
	__u32 mid = (s->lo + s->hi) / 2;
	__u32 k = s->first + mid;
	struct block *b = bpf_map_lookup_elem(&blocks, &k);
	if (b && b->psn <= s->psn)
		s->lo = mid;
	else
		s->hi = mid;
	return 0;
}

#ifdef FAULTS
#include "fault.h"
#endif

#define CTX struct __sk_buff
#define LOAD bpf_skb_load_bytes
#define FN(name) skb_##name
#include "core.h"
#undef CTX
#undef LOAD
#undef FN

#define CTX struct xdp_md
#define LOAD bpf_xdp_load_bytes
#define FN(name) xdp_##name
#include "core.h"

// segment processes one datagram of a super-packet.
static long segment(__u32 i, void *arg)
{
	struct scan *s = arg;
	if (s->at >= s->end)
		return 1;
	__u32 len = s->end - s->at;
	if (len > s->seg)
		len = s->seg;
	if (skb_chunk(s->ctx, s->at, len, s->port, s->from) != TAKEN)
		s->left++;
	s->at += len;
	return 0;
}

// scan processes the datagrams of a packet, which may be a super-packet. It returns how many of
// them other receivers must see.
static __always_inline __u32 scan(struct __sk_buff *skb, __u32 at, __u32 end, __u16 port, __u16 from)
{
	__u32 seg = skb->gso_size;
	__u32 k = WHOLE;
	__u64 *cut = bpf_map_lookup_elem(&counters, &k);
	if (!seg || seg >= end - at || (cut && *cut == seg))
		return skb_chunk(skb, at, end - at, port, from) != TAKEN;
	struct scan s = {.ctx = skb, .at = at, .end = end, .seg = seg, .port = port, .from = from};
	bpf_loop(SEGMENTS, segment, &s, 0);
	return s.left + (s.at < s.end);
}

// ours reports whether this process sent the packet.
static __always_inline int ours(struct __sk_buff *skb, __u16 port)
{
	if (port != own_port)
		return 0;
	if (v6) {
		__u64 a[2];
		if (bpf_skb_load_bytes_relative(skb, __builtin_offsetof(struct ipv6hdr, saddr), a, sizeof a, BPF_HDR_START_NET))
			return 0;
		const volatile __u64 *own = (const volatile __u64 *)own_addr;
		return a[0] == own[0] && a[1] == own[1];
	}
	__u32 a;
	if (bpf_skb_load_bytes_relative(skb, __builtin_offsetof(struct iphdr, saddr), &a, sizeof a, BPF_HDR_START_NET))
		return 0;
	return a == *(const volatile __u32 *)own_addr;
}

// filter is attached to a subgroup's socket. Packets that it takes never reach the socket's
// queue.
SEC("socket")
int filter(struct __sk_buff *skb)
{
	struct udphdr u;
	if (bpf_skb_load_bytes(skb, 0, &u, sizeof u))
		return -1;
	if (!ours(skb, u.source) && scan(skb, sizeof u, skb->len, bpf_ntohs(u.dest), bpf_ntohs(u.source)))
		return -1;
	__u32 k = group;
	__u64 *n = bpf_map_lookup_elem(&counters, &k);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("tcx/ingress")
int ingress(struct __sk_buff *skb)
{
	struct parsed p;
	if (!skb_parse(skb, skb->len, &p) || scan(skb, p.at, p.end, p.port, p.from) || is(SHARED))
		return TCX_NEXT;
	return TCX_DROP;
}

SEC("xdp.frags")
int express(struct xdp_md *xdp)
{
	struct parsed p;
	if (!xdp_parse(xdp, bpf_xdp_get_buff_len(xdp), &p) ||
	    xdp_chunk(xdp, p.at, p.end - p.at, p.port, p.from) != TAKEN || is(SHARED))
		return XDP_PASS;
	return XDP_DROP;
}
