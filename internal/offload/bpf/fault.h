// Fault injection for tests. Only the second object, compiled with FAULTS, includes this file;
// the process loads that object only if faults are configured.

#define RANDOM (COUNTERS - 1) // state of the random numbers
#define LOST (COUNTERS - 3) // datagrams lost on purpose

// A random number below drop_below loses a datagram; below double_below, it takes the datagram
// twice; below hold_below, it leaves the datagram to the process, so that others overtake it. A
// second program does so with the datagrams that the first left, and loses some of them if the
// first could not.
const volatile __u32 drop_below;
const volatile __u32 double_below;
const volatile __u32 hold_below;

// lose counts a datagram that is lost on purpose.
static __always_inline int lose(void)
{
	__u32 k = LOST;
	__u64 *n = bpf_map_lookup_elem(&counters, &k);
	if (n)
		__sync_fetch_and_add(n, 1);
	return TAKEN;
}

// draw returns a random number. Two processors may draw the same one, which does no harm.
static __always_inline __u32 draw(void)
{
	__u32 k = RANDOM;
	__u64 *state = bpf_map_lookup_elem(&counters, &k);
	if (!state)
		return ~0u;
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 32;
}
