// place.c includes this file twice: for packets in the network stack (skb) and for packets in
// the driver (xdp). CTX is the type of the packet, LOAD copies bytes out of it, FN names a
// function.

// The verifier does not track how an offset and a size depend on each other. A chunk that may
// cross the border of two entries is therefore copied in pieces of fixed sizes.
#define PIECE(size)                                                                            \
	static long FN(piece##size)(__u32 i, void *arg)                                        \
	{                                                                                      \
		struct pieces *p = arg;                                                        \
		__u32 o = p->to;                                                               \
		if (p->n < size || o > VALUE - size || LOAD(p->ctx, p->at, p->value + o, size)) \
			return 1;                                                              \
		p->at += size;                                                                 \
		p->to += size;                                                                 \
		p->n -= size;                                                                  \
		return 0;                                                                      \
	}

PIECE(1024)
PIECE(32)
PIECE(1)
#undef PIECE

// copy copies n bytes to offset o of a region's entry.
static __always_inline int FN(copy)(CTX *ctx, __u32 at, __u8 *value, __u32 o, __u32 n)
{
	struct pieces p = {.ctx = ctx, .value = value, .at = at, .to = o, .n = n};
	bpf_loop(MAX_DATAGRAM / 1024, FN(piece1024), &p, 0);
	bpf_loop(32, FN(piece32), &p, 0);
	bpf_loop(32, FN(piece1), &p, 0);
	return p.n ? -1 : 0;
}

// put copies n bytes to offset d of a region.
static __always_inline int FN(put)(CTX *ctx, __u32 at, __u32 region, __u64 d, __u32 n)
{
	void *map = bpf_map_lookup_elem(&regions, &region);
	if (!map)
		return -1;
	__u32 k = d / VALUE;
	__u32 o = d % VALUE;
	__u8 *value = bpf_map_lookup_elem(map, &k);
	if (!value || n == 0 || n > MAX_DATAGRAM || n > max_chunk)
		return -1;
	if (o <= VALUE - max_chunk)
		return LOAD(ctx, at, value + o, n);
	__u32 here = VALUE - o;
	if (here > n)
		here = n;
	if (FN(copy)(ctx, at, value, o, here))
		return -1;
	k++;
	if (here == n || !(value = bpf_map_lookup_elem(map, &k)))
		return here == n ? 0 : -1;
	return FN(copy)(ctx, at + here, value, 0, n - here);
}

// chunk processes one datagram.
static __noinline int FN(chunk)(CTX *ctx, __u32 at, __u32 len, __u16 port, __u16 from)
{
	struct header h;
	if (!ctx || len < sizeof h || len > MAX_DATAGRAM || LOAD(ctx, at, &h, sizeof h))
		return UNKNOWN;
	struct placement *l = find(h.token, port);
	if (!l)
		return UNKNOWN;
	// The process may give the placement to another operation at any time. The copy is valid only
	// if the token is unchanged afterwards.
	struct placement s;
	s.base = l->base;
	s.comm = l->comm;
	s.imm = l->imm;
	s.mask = l->mask;
	s.psns = l->psns;
	s.gen = l->gen;
	s.words = l->words;
	s.blocks = l->blocks;
	s.nblocks = l->nblocks;
	s.per = l->per;
	s.chunk = l->chunk;
	s.region = l->region;
	s.want = l->want;
	s.every = l->every;
	s.own = l->own;
	if (__sync_fetch_and_add(&l->token, 0) != h.token) // also a barrier
		return UNKNOWN;
	if (!exact && from == s.own)
		return UNKNOWN; // perhaps our own packet: the socket's filter also checks the address
#ifdef FAULTS
	__u32 fate = hold_below && !second ? draw() : ~0u;
	if (fate < drop_below)
		return exact || !is(SHARED) ? lose() : HELD; // the next program draws again
#endif

	__u32 psn = h.imm & s.mask;
	if (h.comm != s.comm || (h.imm & ~s.mask) != s.imm || psn >= s.psns)
		goto foreign;
	struct search q = {.first = s.blocks, .hi = s.nblocks, .psn = psn};
	if (s.per)
		q.lo = psn / s.per;
	else
		bpf_loop(32, halve, &q, 0);
	__u32 k = s.blocks + q.lo;
	struct block *b = bpf_map_lookup_elem(&blocks, &k);
	if (!b || psn - b->psn >= b->n)
		goto foreign;
	__u32 nth = psn - b->psn;
	__u32 n = nth + 1 == b->n ? b->tail : s.chunk;
	if (len - sizeof h != n)
		goto foreign;
	__u64 d = s.base + b->off + (__u64)nth * s.chunk;

#ifdef FAULTS
	if (fate >= double_below && fate < hold_below)
		return HELD;
#endif
	k = s.words + psn / 32;
	struct word *w = bpf_map_lookup_elem(&words, &k);
	if (!w)
		return UNKNOWN;
	__u32 bit = 1u << (psn & 31);
	int won = 0;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 old = *(volatile __u64 *)&w->claimed;
		if (old >> 32 != s.gen)
			return UNKNOWN; // the operation has ended
		if (old & bit) {
			if (second)
				return TAKEN;
			if (w->read & bit)
				__sync_fetch_and_add(&l->late, 1);
			else
				__sync_fetch_and_add(&l->duplicates, 1);
			return TAKEN;
		}
#ifdef FAULTS
		if (second && hold_below)
			return is(SHARED) && draw() < drop_below ? lose() : HELD;
#endif
		if (__sync_val_compare_and_swap(&w->claimed, old, old | bit) == old) {
			won = 1;
			break;
		}
	}
	if (!won)
		return HELD;
	if (FN(put)(ctx, at + sizeof h, s.region, d, n)) {
		// The code uses the known results of the atomics here and below on purpose: an atomic
		// whose result is unused is no barrier, and could overtake the copied bytes.
		if (!(__sync_fetch_and_and(&w->claimed, ~(__u64)bit) & bit))
			return UNKNOWN;
		return HELD;
	}
	if (__sync_fetch_and_or(&w->done, bit) & bit)
		return TAKEN;
	__u64 placed = __sync_fetch_and_add(&l->placed, 1) + 1;
	if (placed >= s.want || !(placed & (s.every - 1)))
		bpf_ringbuf_output(&events, &s.gen, sizeof s.gen, BPF_RB_FORCE_WAKEUP);
#ifdef FAULTS
	if (fate < double_below)
		__sync_fetch_and_add(&l->duplicates, 1); // the second copy would be a duplicate
#endif
	return TAKEN;

foreign:
	if (!second)
		__sync_fetch_and_add(&l->foreign, 1);
	return TAKEN;
}

// parse finds the payload of an unfragmented UDP packet.
static __always_inline int FN(parse)(CTX *ctx, __u32 len, struct parsed *p)
{
	__be16 proto;
	__u32 at = sizeof(struct ethhdr);
	if (LOAD(ctx, __builtin_offsetof(struct ethhdr, h_proto), &proto, sizeof proto))
		return 0;
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (LOAD(ctx, at, &ip, sizeof ip) || ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(0x3fff))
			return 0;
		at += ip.ihl * 4;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (LOAD(ctx, at, &ip, sizeof ip) || ip.nexthdr != IPPROTO_UDP)
			return 0;
		at += sizeof ip;
	} else {
		return 0;
	}
	struct udphdr u;
	if (LOAD(ctx, at, &u, sizeof u))
		return 0;
	__u32 n = bpf_ntohs(u.len);
	if (n <= sizeof u || at + n > len)
		return 0;
	p->at = at + sizeof u;
	p->end = at + n;
	p->port = bpf_ntohs(u.dest);
	p->from = bpf_ntohs(u.source);
	return 1;
}
