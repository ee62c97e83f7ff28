/*
 * Retries, window and fallback of in-network reduction, as in internal/inc (op.go, session.go).
 * README.md lists what the model omits.
 *
 *   -DN=3         ranks, 2 to 4
 *   -DBELOW=3     ranks below the leaf aggregator, one bit per rank; the top aggregator serves the
 *                 others. 0: the top serves all
 *   -DPLACES=4    chunks of all blocks together
 *   -DOPS=1       operations, one after the other
 *   -DLOSSES=1    number of datagrams that the network may lose, at any hop
 *   -DDUPS=1      number of datagrams that it may duplicate
 *   -DRESTARTS=1  number of times that an aggregator may lose its slots
 *   -DDOWNS=1     number of times that a rank may find its aggregators dead
 *   -DTRIES=1     requests for a chunk before its owner fetches it
 *   -DOFFERS=1    number of these tries in which ranks only offer their contributions
 *   -DEARLY=1     number of times that an owner may ask for a chunk that would still arrive
 *   -DSWIFT       requests take no time, for models that would be too large otherwise
 *
 * Broken variants. The check must reject each of them, which shows that it can fail:
 *
 *   -DNO_BITMAP     a slot counts contributions instead of children
 *   -DNO_NUMBER     aggregators ignore the number of the operation
 *   -DOLD_SUM       owners ignore the number of the operation
 *   -DREOPEN        an older place takes the slot of a newer one
 *   -DWIDE          credit allows one more place than there are slots
 *   -DOWN_CREDIT    a rank's credit depends on its own sums only, not on those of the slowest owner
 *   -DANY_DUPLICATE every duplicate makes an aggregator send a complete sum again
 *   -DNO_REPEAT     an aggregator never sends a complete sum again
 *   -DTOP_REPEATS   only the top aggregator sends a complete sum again
 *   -DNO_HANDSHAKE  a rank ends an operation when it has its own sums
 *   -DLOOSE         a sum is placed although its owner fetches that chunk
 *   -DNO_FETCH      an owner only asks
 *   -DOFFER_COUNTS  an aggregator takes an offer for the contribution
 *   -DOFFER_KEPT    an aggregator with one child repeats a sum that it has not kept
 *   -DNO_SLOT       an aggregator without a slot for the chunk ignores offers
 *   -DWANT_FIRST    a rank sends a wanted contribution as in its first try
 *   -DWANT_LATE     a rank sends a wanted contribution although its operation has ended
 */
#ifndef N
#define N 3
#endif
#define ALL ((1 << N) - 1)
#ifndef BELOW
#define BELOW 3
#endif
#ifndef PLACES
#define PLACES 4
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef DUPS
#define DUPS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef DOWNS
#define DOWNS 0
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef TRIES
#define TRIES 1
#endif
#ifndef OFFERS
#define OFFERS 0
#endif

#define BIT(i) (1 << (i))
#define SLOTS 2

/* Children and parents. The senders of datagrams are the ranks, then these two aggregators. */
#define LEAF N
#define TOP (N + 1)
#define PARENT(s) ((s) < N && (BELOW & BIT(s)) != 0 -> LEAF : TOP)
#define EXPECTS_LEAF(x) (BELOW & ~BIT(OWNER(x)))
#define EXPECTS_TOP(x) ((ALL & ~BELOW & ~BIT(OWNER(x))) | (EXPECTS_LEAF(x) != 0 -> BIT(LEAF) : 0))
#define EXPECTS(n, x) ((n) == LEAF -> EXPECTS_LEAF(x) : EXPECTS_TOP(x))

/* A chunk x is a place of an operation. Later operations have larger numbers. */
#define CHUNK(o, p) ((o) * PLACES + (p))
#define PLACE(x) ((x) % PLACES)
#define OP(x) ((x) / PLACES)
#define OWNER(x) (PLACE(x) % N)
#define SAME_OP(o) ((BIT(PLACES) - 1) << ((o) * PLACES))

/* A datagram is one bit of a mask: its chunk and its try. Sets of datagrams have no order. */
#define T (TRIES + 1)
#define DATAGRAM(x, t) BIT((x) * T + (t))
#define ALL_TRIES(x) ((BIT(T) - 1) << ((x) * T))
#if OPS * PLACES > 8 || OPS * PLACES * (TRIES + 1) > 30
#error "too many chunks or tries for the masks"
#endif

/* Ranks. */
byte op[N];   /* operation in progress; OPS: all have ended */
byte next[N]; /* place that the rank sends next */
byte heard;   /* ranks that know that the aggregators are dead, in this operation */
int asked[N]; /* requests on the way to a rank, by chunk and try */

/* Chunks, at their owners. */
byte have;    /* chunks that are in place */
byte claimed; /* chunks that a fetch in progress writes */
byte tried[OPS * PLACES]; /* number of requests; 0 again when the chunk is in place */

/* Slots of the leaf, then those of the top. */
byte slot[2 * SLOTS]; /* chunk + 1; 0: empty */
byte got[2 * SLOTS];  /* children whose contributions are in the sum */
byte try[2 * SLOTS];  /* latest try that the slot has seen */
byte sent[2 * SLOTS]; /* latest try of a sum that was sent, + 1; 0: none */

int flight[N + 2]; /* datagrams on their way, by sender */

#if OFFERS > 0
byte payload[2 * SLOTS]; /* children of which the slot has the data */
int offer[N];   /* offers on their way, by rank */
int want[N];    /* wants on their way, by rank */
int offered[N]; /* offers of a rank that it was not asked for, by chunk and latest try */
#define OFFERING(r) (offer[r] | want[r])
#else
#define OFFERING(r) 0
#endif

byte losses = LOSSES;
byte dups = DUPS;
byte restarts = RESTARTS;
byte downs = DOWNS;
byte early = EARLY;
byte hurt; /* chunks of which the latest try has lost a datagram, or a slot */

/* Names of properties, for the output. They are never true. */
bool mixed;   /* a sum has all contributions of its chunk, each once, and no others */
bool taken;   /* a slot is taken from a chunk only when the owner has that chunk */
bool again;   /* an aggregator sends a sum once per try */
bool wasted;  /* one try heals all losses before it */
bool doubled; /* a chunk is placed once */
bool freed;   /* inputs are read only while their owners' operations are in progress */
bool stuck;   /* every operation ends, and every owner has its sums */
#define MUST(name, condition) if :: (condition) :: else -> assert(name) fi

#define HAVE(x) ((have & BIT(x)) != 0)
#define HEARD(r) ((heard & BIT(r)) != 0)

/* Credit: a place is sent only if all owners have all places that lie WINDOW or more before it. */
#ifdef WIDE
#define WINDOW (SLOTS + 1)
#else
#define WINDOW SLOTS
#endif
#define NEEDED(p) (BIT((p) + 1 - WINDOW) - 1)
#ifdef OWN_CREDIT
#define GRANTED(r, o, p) ((p) < WINDOW || (NEEDED(p) & OWNED(r) & ~(have >> ((o) * PLACES))) == 0)
#else
#define GRANTED(r, o, p) ((p) < WINDOW || (NEEDED(p) & ~(have >> ((o) * PLACES))) == 0)
#endif

/* pick sets b to any bit of a mask, which is not 0. */
inline pick(mask) {
	do
	:: (mask & BIT(b)) == 0 -> b++
	:: (mask & BIT(b)) != 0 -> break
	:: (mask & BIT(b)) != 0 && (mask >> (b + 1)) != 0 -> b++
	od
}

/* send: the network takes a datagram, or loses it. */
inline send(s, c, t) {
	if
	:: flight[s] = flight[s] | DATAGRAM(c, t)
	:: losses > 0 && !HAVE(c) -> losses--; hurt = hurt | BIT(c)
	fi
}

/* signal: the network takes an offer or a want, or loses it. */
inline signal(datagrams, c, t) {
	if
	:: datagrams = datagrams | DATAGRAM(c, t)
	:: losses > 0 && !HAVE(c) -> losses--; hurt = hurt | BIT(c)
	fi
}

/* place: a sum is in its owner's buffer. */
inline place(c) {
	MUST(doubled, !HAVE(c));
	have = have | BIT(c);
	hurt = hurt & ~BIT(c);
	tried[c] = 0
}

#if OFFERS > 0
#define PAYLOAD(k) payload[k]
#else
#define PAYLOAD(k) got[k]
#endif

/* forward sends the sum of slot k. */
inline forward(n) {
	MUST(mixed, got[k] == EXPECTS(n, x) && PAYLOAD(k) == got[k]);
	MUST(again, try[k] >= sent[k]);
	sent[k] = try[k] + 1;
	send(n, x, try[k])
}

#ifdef NO_NUMBER
#define SAME(k) (slot[k] != 0 && PLACE(slot[k] - 1) == PLACE(x))
#define STALE(k) (slot[k] > x + 1 && !SAME(k))
#elif defined(REOPEN)
#define SAME(k) (slot[k] == x + 1)
#define STALE(k) false
#else
#define SAME(k) (slot[k] == x + 1)
#define STALE(k) (slot[k] > x + 1)
#endif
#ifdef NO_BITMAP
#define NEW(s) (got[k] != EXPECTS(n, x))
#else
#define NEW(s) ((got[k] & BIT(s)) == 0)
#endif
#ifdef ANY_DUPLICATE
#define REPEATS(n, later) true
#elif defined(NO_REPEAT)
#define REPEATS(n, later) false
#elif defined(TOP_REPEATS)
#define REPEATS(n, later) ((later) && (n) == TOP)
#else
#define REPEATS(n, later) (later)
#endif

/* contribute: a contribution to chunk x arrives at aggregator n from its child s (Session.Contribute). */
inline contribute(n, s, t) {
	k = (n - LEAF) * SLOTS + PLACE(x) % SLOTS;
	later = false;
	if
	:: STALE(k)
	:: else ->
		if
		:: SAME(k) ->
			later = t > try[k];
			if
			:: later -> try[k] = t
			:: else
			fi
		:: else ->
			MUST(taken, slot[k] == 0 || HAVE(slot[k] - 1));
			slot[k] = x + 1;
			got[k] = 0;
#if OFFERS > 0
			payload[k] = 0;
#endif
			try[k] = t;
			sent[k] = 0
		fi;
		if
		:: NEW(s) ->
			MUST(mixed, slot[k] == x + 1 && (got[k] & BIT(s)) == 0);
			got[k] = got[k] | BIT(s);
#if OFFERS > 0
			payload[k] = payload[k] | BIT(s);
#endif
			if
			:: got[k] == EXPECTS(n, x) -> forward(n)
			:: else
			fi
		:: else ->
			if
			:: got[k] == EXPECTS(n, x) && REPEATS(n, later) -> forward(n)
			:: else
			fi
		fi
	fi;
	k = 0;
	later = false
}

#if OFFERS > 0
/* An aggregator does not keep the sum of one contribution: it has no data to send again. */
#define SINGLE(n, x) ((EXPECTS(n, x) & (EXPECTS(n, x) - 1)) == 0)
#ifdef OFFER_KEPT
#define KEPT(n) true
#else
#define KEPT(n) !SINGLE(n, x)
#endif
#ifdef NO_SLOT
#define IGNORED(k) (STALE(k) || slot[k] != x + 1)
#else
#define IGNORED(k) STALE(k)
#endif
#define MISSED(s) (!SAME(k) || (got[k] & BIT(s)) == 0)

/* consider: an offer for chunk x arrives at aggregator n from rank s (Session.offered). */
inline consider(n, s, t) {
	k = (n - LEAF) * SLOTS + PLACE(x) % SLOTS;
	if
	:: IGNORED(k)
	:: else ->
		if
#ifdef OFFER_COUNTS
		:: MISSED(s) && SAME(k) ->
			got[k] = got[k] | BIT(s);
			if
			:: got[k] == EXPECTS(n, x) -> forward(n)
			:: else
			fi
		:: MISSED(s) && !SAME(k) -> signal(want[s], x, t)
#else
		:: MISSED(s) -> signal(want[s], x, t)
#endif
		:: !MISSED(s) && t <= try[k]
		:: !MISSED(s) && t > try[k] && got[k] != EXPECTS(n, x) -> try[k] = t
		:: !MISSED(s) && t > try[k] && got[k] == EXPECTS(n, x) && !REPEATS(n, true)
		:: !MISSED(s) && t > try[k] && got[k] == EXPECTS(n, x) && REPEATS(n, true) ->
			if
			:: KEPT(n) ->
				MUST(mixed, !SINGLE(n, x));
				try[k] = t;
				forward(n)
			:: else -> signal(want[s], x, t)
			fi
		fi
	fi;
	k = 0
}

/* deliver_offer: any offer of rank s arrives. */
inline deliver_offer(s) {
	pick(offer[s]);
	x = b / T;
	if
	:: dups > 0 -> dups--
	:: offer[s] = offer[s] & ~BIT(b)
	fi;
	consider(PARENT(s), s, b % T);
	b = 0;
	x = 0
}

#ifdef WANT_FIRST
#define AS(t) 0
#else
#define AS(t) (t)
#endif
#ifdef WANT_LATE
#define RUNNING(r) true
#else
#define RUNNING(r) (op[r] == OP(x))
#endif

/* deliver_want: any want arrives at rank r. It sends the contribution if it has offered it in that try (Op.Wanted). */
inline deliver_want(r) {
	pick(want[r]);
	x = b / T;
	if
	:: dups > 0 -> dups--
	:: want[r] = want[r] & ~BIT(b)
	fi;
	if
	:: RUNNING(r) && !HEARD(r) && (offered[r] & BIT(b)) != 0 ->
		MUST(freed, op[r] == OP(x));
		offered[r] = offered[r] & ~BIT(b);
		send(r, x, AS(b % T))
	:: else
	fi;
	b = 0;
	x = 0
}
#endif

/* result: the top aggregator's sum of chunk x arrives at its owner. */
inline result() {
	if
#ifdef OLD_SUM
	:: op[OWNER(x)] < OPS && !HAVE(CHUNK(op[OWNER(x)], PLACE(x))) -> MUST(mixed, op[OWNER(x)] == OP(x)); place(x)
#elif defined(LOOSE)
	:: op[OWNER(x)] == OP(x) && !HAVE(x) -> place(x)
#else
	:: op[OWNER(x)] == OP(x) && !HAVE(x) && (claimed & BIT(x)) == 0 -> place(x)
#endif
	:: else /* a duplicate, or a sum of an operation that has ended */
	fi
}

/* deliver: any datagram of a sender arrives. */
inline deliver(s) {
	pick(flight[s]);
	x = b / T;
	if
	:: dups > 0 -> dups-- /* it arrives again later */
	:: flight[s] = flight[s] & ~BIT(b)
	fi;
	if
	:: s == TOP -> result()
	:: else -> contribute(PARENT(s), s, b % T)
	fi;
	b = 0;
	x = 0
}

/* restart: an aggregator forgets its slots. */
inline restart(n) {
	k = (n - LEAF) * SLOTS;
	do
	:: k < (n - LEAF + 1) * SLOTS ->
		if
		:: slot[k] != 0 && !HAVE(slot[k] - 1) -> hurt = hurt | BIT(slot[k] - 1)
		:: else
		fi;
		slot[k] = 0; got[k] = 0; try[k] = 0; sent[k] = 0;
#if OFFERS > 0
		payload[k] = 0;
#endif
		k++
	:: else -> break
	od;
	k = 0
}

/* answer: a rank offers a requested contribution, or sends it again. It will send later places anyway. */
inline answer(r, c, t) {
	if
	:: op[r] == OP(c) && !HEARD(r) && PLACE(c) < next[r] ->
#if OFFERS > 0
		offered[r] = offered[r] & ~ALL_TRIES(c);
		if
		:: t <= OFFERS ->
			offered[r] = offered[r] | DATAGRAM(c, t);
			signal(offer[r], c, t)
		:: else -> send(r, c, t)
		fi
#else
		send(r, c, t)
#endif
	:: else
	fi
}

/* first_asked sets b to the first try of a chunk that a rank was asked for: the requests of an owner keep their order. */
inline first_asked(mask) {
	pick(mask);
	b = (b / T) * T;
	do
	:: (mask & BIT(b)) == 0 -> b++
	:: else -> break
	od
}

/* ask: the owner of chunk c requests it from all other ranks. */
inline ask(c) {
	hurt = hurt & ~BIT(c);
	tried[c]++;
	do
	:: b < N ->
		if
#ifdef SWIFT
		:: b != OWNER(c) -> answer(b, c, tried[c])
#else
		:: b != OWNER(c) && op[b] == OP(c) -> asked[b] = asked[b] | DATAGRAM(c, tried[c])
#endif
		:: else
		fi;
		b++
	:: else -> break
	od;
	b = 0
}

/* Places of rank r. */
#define OWN(r, p) ((p) % N == (r) -> BIT(p) : 0)
#define OWNED(r) (OWN(r, 0) | OWN(r, 1) | OWN(r, 2) | OWN(r, 3) | OWN(r, 4) | OWN(r, 5))

/* The handshake: all owners have their sums. Then users own their inputs again. */
#ifdef NO_HANDSHAKE
#define ENDED(r) ((SAME_OP(op[r]) & (OWNED(r) << (op[r] * PLACES)) & ~have) == 0)
#else
#define ENDED(r) ((SAME_OP(op[r]) & ~have) == 0)
#endif

#if N == 2
#define COUNT(f, a) (f(0, a) + f(1, a))
#elif N == 3
#define COUNT(f, a) (f(0, a) + f(1, a) + f(2, a))
#else
#define COUNT(f, a) (f(0, a) + f(1, a) + f(2, a) + f(3, a))
#endif
#define BEHIND(r, o) (op[r] < (o))
#define AHEAD(r, o) (op[r] > (o))
#define TELLS(r, o) (HEARD(r) && op[r] == (o))

#if OFFERS > 0
#define OFFER_STEPS(r) \
	:: atomic { offer[r] != 0 -> deliver_offer(r) } \
	:: atomic { want[r] != 0 -> deliver_want(r) }
#ifdef WANT_LATE
#define FORGET_OFFERS(r)
#else
#define FORGET_OFFERS(r) offered[r] = 0;
#endif
#else
#define OFFER_STEPS(r)
#define FORGET_OFFERS(r)
#endif

/* Steps of one rank. */
#define RANK(r) \
	/* It sends a place, and skips its own, after the barrier: all ranks have made the call. */ \
	:: atomic { \
		op[r] < OPS && next[r] < PLACES && !HEARD(r) && GRANTED(r, op[r], next[r]) && COUNT(BEHIND, op[r]) == 0 -> \
		x = CHUNK(op[r], next[r]); \
		send(r, x, 0); \
		next[r] = next[r] + 1 + ((next[r] + 1) % N == r); \
		x = 0 \
	} \
	:: atomic { asked[r] != 0 -> first_asked(asked[r]); asked[r] = asked[r] & ~BIT(b); answer(r, b / T, b % T); b = 0 } \
	:: atomic { flight[r] != 0 -> deliver(r) } \
	OFFER_STEPS(r) \
	/* Its connection to an aggregator ends, or another rank says so. */ \
	:: atomic { op[r] < OPS && !HEARD(r) && downs > 0 && heard == 0 -> downs--; heard = heard | BIT(r) } \
	:: atomic { op[r] < OPS && !HEARD(r) && COUNT(TELLS, op[r]) > 0 -> heard = heard | BIT(r) } \
	/* Its operation ends, and the next one begins. */ \
	:: atomic { \
		op[r] < OPS && ENDED(r) -> \
		op[r]++; \
		next[r] = (r == 0); \
		asked[r] = 0; \
		FORGET_OFFERS(r) \
		heard = heard & ~BIT(r) \
	}

/* The chunk of a place in the operation of its owner. */
#define OF(p) ((p) % N)
#define C(p) CHUNK(op[OF(p)], p)
#define MISSING(p) (op[OF(p)] < OPS && ((have | claimed) & BIT(C(p))) == 0)

/* Nothing of a place is on its way any more, and nothing will be sent before a request. */
#define UNSENT(r, p) ((r) != OF(p) && (op[r] < op[OF(p)] || next[r] <= (p)))
#define ON_ITS_WAY(r, p) (((asked[r] | flight[r] | OFFERING(r)) & ALL_TRIES(C(p))) != 0)
#define QUIET(p) (COUNT(UNSENT, p) + COUNT(ON_ITS_WAY, p) == 0 && ((flight[LEAF] | flight[TOP]) & ALL_TRIES(C(p))) == 0)
#ifdef NO_FETCH
#define FETCHES false
#else
#define FETCHES true
#endif

/* Steps of the owner of a place. */
#define STEPS(p) \
	/* It asks again, at the cutoff or too early. */ \
	:: atomic { \
		MISSING(p) && !HEARD(OF(p)) && tried[C(p)] < TRIES && QUIET(p) -> \
		x = C(p); \
		MUST(wasted, (hurt & BIT(x)) != 0 || heard != 0); \
		ask(x); \
		x = 0 \
	} \
	:: atomic { \
		MISSING(p) && !HEARD(OF(p)) && tried[C(p)] < TRIES && early > 0 && !QUIET(p) && GRANTED(OF(p), op[OF(p)], p) -> \
		early--; \
		x = C(p); \
		ask(x); \
		x = 0 \
	} \
	/* It fetches the contributions after the last try, or if the aggregators are dead. */ \
	:: atomic { \
		FETCHES && MISSING(p) && (HEARD(OF(p)) || (tried[C(p)] == TRIES && QUIET(p))) -> \
		MUST(wasted, (hurt & BIT(C(p))) != 0 || heard != 0); \
		claimed = claimed | BIT(C(p)) \
	} \
	:: atomic { \
		op[OF(p)] < OPS && (claimed & BIT(C(p))) != 0 -> \
		x = C(p); \
		MUST(freed, COUNT(AHEAD, OP(x)) == 0); \
		claimed = claimed & ~BIT(x); \
		place(x); \
		x = 0 \
	}

active proctype world() {
	byte b, x, k; /* zero between steps, to keep states few */
	bool later;
	next[0] = 1;
	do
	RANK(0)
	RANK(1)
#if N > 2
	RANK(2)
#endif
#if N > 3
	RANK(3)
#endif
	:: atomic { flight[LEAF] != 0 -> deliver(LEAF) }
	:: atomic { flight[TOP] != 0 -> deliver(TOP) }
	:: atomic { restarts > 0 && slot[0] + slot[1] != 0 -> restarts--; restart(LEAF) }
	:: atomic { restarts > 0 && slot[2] + slot[3] != 0 -> restarts--; restart(TOP) }
	STEPS(0)
	STEPS(1)
	STEPS(2)
#if PLACES > 3
	STEPS(3)
#endif
#if PLACES > 4
	STEPS(4)
#endif
#if PLACES > 5
	STEPS(5)
#endif
	:: else -> break
	od;
	MUST(stuck, COUNT(BEHIND, OPS) == 0)
}
