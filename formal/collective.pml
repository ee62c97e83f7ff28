/*
 * Fetch ring, final handshake and abort of one multicast collective, as in
 * internal/mcast (collective.go, fetch.go, intake.go) and internal/node (fail.go,
 * liveness.go). README.md says what is left out.
 *
 *   -DN=3         ranks, 2 to 4
 *   -DSENDERS=7   who contributes a block, one bit a rank: all is an Allgather, one a Broadcast
 *   -DCRASHES=1   how many ranks may die
 *   -DABORTS=1    how often a user may call Abort
 *   -DDUPS=1      how many datagrams the network may double
 *   -DLOSSES=4    how many it may lose; by default any number
 *
 * Two that make the state space smaller, for what would be too large:
 *
 *   -DSWIFT       Fetch and Avail take no time
 *   -DPROMPT      a datagram is lost, or takes no time
 *
 * What must be caught, so that the check is known to be able to fail:
 *
 *   -DNO_HANDSHAKE  a rank completes without its right neighbour's Final
 *   -DNO_SENT       a rank completes while the network still sends from its buffer
 *   -DNO_QUIESCE    a failed call is reported before its buffers are out of reach
 *   -DNO_SPREAD     who learns of a failure keeps it to itself
 *   -DWAIT_ALL      a Fetch is answered when all of it is there
 *   -DLOOSE         a datagram is placed although a read of its chunk is under way
 */
#ifndef N
#define N 3
#endif
#define ALL ((1 << N) - 1)
#ifndef SENDERS
#define SENDERS ALL
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef DUPS
#define DUPS 0
#endif

#ifdef LOSSES
#define LOST 1
#else
#define LOSSES 1
#define LOST 0 /* nothing is counted, so there is no limit */
#endif

#define BIT(i)    (1 << (i))
#define LEFT(r)   (((r) + N - 1) % N)
#define RIGHT(r)  (((r) + 1) % N)
#define PAIR(s, r) ((s) * N + (r))

/* The life of a call on one rank. DONE and FAILED: the buffers are the user's, who overwrites them. */
#define RUN 0
#define FAILING 1 /* to be made quiet */
#define FAILED 2
#define DONE 3
#define RELEASED(r) (phase[r] >= FAILED)

/* One rank's multicast. LEAVING: datagrams are on their way, the buffer is still read from. */
#define TO_SEND 0
#define LEAVING 1
#define SENT 2

/* The right neighbour's Final. */
#define NO_FINAL 0
#define COMING 1
#define GOT 2

/* Masks have one bit a block: block i is rank i's. */
byte phase[N];
byte snd[N];
byte bits[N];   /* here, as the receiver knows */
byte good[N];   /* whose bytes in the buffer are the right ones */
byte asked[N];  /* of the left neighbour */
byte busy[N];   /* under read */
byte want[N];   /* asked by the right neighbour and not here */
byte flight[N]; /* datagrams that will reach this rank, some time */
byte fetch[N];  /* Fetch on its way to this rank */
byte avail[N];  /* Avail on its way to this rank */
byte final[N];  /* Final on its way to this rank, or here */
byte sent;      /* blocks that were announced as sent */

byte dead[N];           /* whom this rank knows to be lost */
byte blame[N];          /* why its communicator is broken: a rank + 1; 0: it is not */
byte deadMsg[N * N];    /* Dead on their way, by sender and receiver */
byte abortMsg[N * N];   /* Abort likewise: the culprit + 1 */
byte crashed;
byte aborter;
byte crashes = CRASHES;
byte aborts = ABORTS;
byte dups = DUPS;
byte losses = LOSSES;

#define LIVES(r) ((crashed & BIT(r)) == 0)

/* settle is what an Op does at the end of every step (Op.settle). */
inline settle(r) {
	if
	:: phase[r] == RUN && bits[r] == SENDERS ->
		if
		:: final[LEFT(r)] == NO_FINAL && LIVES(LEFT(r)) -> final[LEFT(r)] = COMING
		:: else
		fi;
		if
#ifdef NO_HANDSHAKE
		:: snd[r] == SENT ->
#elif defined(NO_SENT)
		:: final[r] == GOT ->
#else
		:: snd[r] == SENT && final[r] == GOT ->
#endif
			assert(good[r] == SENDERS); /* completion: all data is right */
			phase[r] = DONE;
			good[r] = 0; /* the user writes something else there */
			want[r] = 0
		:: else
		fi
	:: else
	fi
}

/* available: the left neighbour's Avail is here, and reads begin. */
inline available(r) {
	if
	:: phase[r] == RUN -> busy[r] = busy[r] | (avail[r] & asked[r] & ~bits[r])
	:: else
	fi;
	avail[r] = 0
}

/* offer tells the right neighbour what it asked for and can now read. */
inline offer(r, m) {
	if
	:: (m) != 0 && LIVES(RIGHT(r)) ->
		avail[RIGHT(r)] = avail[RIGHT(r)] | (m);
#ifdef SWIFT
		available(RIGHT(r))
#endif
	:: else
	fi
}

/* asksUs: the right neighbour's Fetch is here. */
inline asksUs(r) {
	if
	:: phase[r] == RUN ->
#ifdef WAIT_ALL
		want[r] = want[r] | fetch[r];
		if
		:: (want[r] & ~bits[r]) == 0 -> offer(r, want[r]); want[r] = 0
		:: else
		fi
#else
		want[r] = want[r] | (fetch[r] & ~bits[r]);
		offer(r, fetch[r] & bits[r])
#endif
	:: else
	fi;
	fetch[r] = 0
}

/* gained: chunk c is here now. */
inline gained(r, c) {
	bits[r] = bits[r] | BIT(c);
#ifdef WAIT_ALL
	if
	:: want[r] != 0 && (want[r] & ~bits[r]) == 0 -> offer(r, want[r]); want[r] = 0
	:: else
	fi;
#else
	offer(r, want[r] & BIT(c));
	want[r] = want[r] & ~BIT(c);
#endif
	settle(r)
}

/* place writes a block into a buffer, which must be in use still. */
inline place(r, c, right) {
	assert(!RELEASED(r)); /* nobody writes to a buffer after its owner's call ended */
	if
	:: right -> good[r] = good[r] | BIT(c)
	:: else -> good[r] = good[r] & ~BIT(c)
	fi
}

/* fail: the communicator breaks on this rank (Node.breakComm). */
inline fail(r, culprit) {
	if
	:: blame[r] == 0 ->
		assert((crashed | aborter) & BIT(culprit)); /* it names a rank that really failed */
		blame[r] = culprit + 1;
		i = 0;
		do
		:: i < N -> abortMsg[PAIR(i, r)] = 0; i++
		:: else -> break
		od;
		if
#ifdef NO_QUIESCE
		:: phase[r] == RUN -> phase[r] = FAILED; good[r] = 0
#else
		:: phase[r] == RUN -> phase[r] = FAILING
#endif
		:: else
		fi
	:: else
	fi
}

/*
 * declare: this rank takes d for lost, tells everybody and breaks (Node.declare).
 * A message that its receiver would ignore for ever is not kept.
 */
inline declare(r, d) {
	dead[r] = dead[r] | BIT(d);
	i = 0;
	do
	:: i < N ->
		deadMsg[PAIR(i, r)] = deadMsg[PAIR(i, r)] & ~BIT(d);
#ifndef NO_SPREAD
		if
		:: i != r && LIVES(i) && (dead[i] & BIT(d)) == 0 ->
			deadMsg[PAIR(r, i)] = deadMsg[PAIR(r, i)] | BIT(d)
		:: else
		fi;
#endif
		i++
	:: else -> break
	od;
	fail(r, d)
}

/* breakBy: this rank learns of an Abort, or calls it, and tells the others. */
inline breakBy(r, culprit) {
	i = 0;
	do
	:: i < N ->
#ifdef NO_SPREAD
		if
		:: i != r && LIVES(i) && blame[i] == 0 && i == RIGHT(r) && r == culprit -> abortMsg[PAIR(r, i)] = culprit + 1
#else
		if
		:: i != r && LIVES(i) && blame[i] == 0 -> abortMsg[PAIR(r, i)] = culprit + 1
#endif
		:: else
		fi;
		i++
	:: else -> break
	od;
	fail(r, culprit)
}

/* crash: what a dying rank had sent arrives, or is lost with its connections. */
inline crash(r) {
	crashed = crashed | BIT(r);
	if
	:: fetch[LEFT(r)] != 0 -> fetch[LEFT(r)] = 0
	:: true
	fi;
	if
	:: avail[RIGHT(r)] != 0 -> avail[RIGHT(r)] = 0
	:: true
	fi;
	if
	:: final[LEFT(r)] == COMING -> final[LEFT(r)] = NO_FINAL
	:: true
	fi;
	i = 0;
	do
	:: i < N ->
		if
		:: deadMsg[PAIR(r, i)] != 0 -> deadMsg[PAIR(r, i)] = 0
		:: true
		fi;
		if
		:: abortMsg[PAIR(r, i)] != 0 -> abortMsg[PAIR(r, i)] = 0
		:: true
		fi;
		deadMsg[PAIR(i, r)] = 0;
		abortMsg[PAIR(i, r)] = 0;
		i++
	:: else -> break
	od;
	/* What it knew and what would have reached it matters to nobody. */
	bits[r] = 0; good[r] = 0; asked[r] = 0; busy[r] = 0; want[r] = 0;
	flight[r] = 0; fetch[r] = 0; avail[r] = 0; final[r] = 0; dead[r] = 0; blame[r] = 0
}

/* Whom a rank watches: the nearest to its left that it does not know to be dead. */
#define KNOWS(r, d) ((dead[r] & BIT(d)) != 0)
#if N == 2
#define WATCHED(r) LEFT(r)
#elif N == 3
#define WATCHED(r) (KNOWS(r, LEFT(r)) -> RIGHT(r) : LEFT(r))
#else
#define WATCHED(r) (!KNOWS(r, LEFT(r)) -> LEFT(r) : (!KNOWS(r, (r + 2) % N) -> (r + 2) % N : RIGHT(r)))
#endif
#define SILENT(d) (!LIVES(d) && !KNOWS(me, d))

/* The steps that concern one block. */

/* arrive: a datagram (Intake.Judge). */
inline arrive(r, c) {
	if
	:: dups > 0 -> dups-- /* and once more later */
	:: flight[r] = flight[r] & ~BIT(c)
	fi;
	if
#ifdef LOOSE
	:: phase[r] <= FAILING && (bits[r] & BIT(c)) == 0 ->
#elif defined(NO_QUIESCE)
	:: phase[r] != DONE && ((bits[r] | busy[r]) & BIT(c)) == 0 ->
#else
	:: phase[r] <= FAILING && ((bits[r] | busy[r]) & BIT(c)) == 0 ->
#endif
		place(r, c, true);
		if
		:: phase[r] == RUN -> gained(r, c)
		:: else /* the worker has not been told yet */
		fi
	:: else /* a duplicate, late, or of no operation that is known here */
	fi
}

/* readEnds: one block has come out of the left neighbour's memory into ours. */
inline readEnds(r, c) {
	assert(!RELEASED(LEFT(r))); /* nobody reads from a buffer after its owner's call ended */
	place(r, c, (good[LEFT(r)] & BIT(c)) != 0);
	busy[r] = busy[r] & ~BIT(c);
	if
	:: phase[r] == RUN -> gained(r, c)
	:: else
	fi
}

/* A buffer whose owner failed and is quiet is out of reach: such a read never ends. */
#ifdef NO_QUIESCE
#define REACHES(r) LIVES(r)
#else
#define REACHES(r) (LIVES(r) && phase[r] != FAILED)
#endif

#ifdef PROMPT
#define DELIVER(r, c) arrive(r, c)
#else
#define DELIVER(r, c) skip
#endif

#define BLOCK(c) \
	:: atomic { LIVES(me) && (flight[me] & BIT(c)) != 0 -> arrive(me, c) } \
	:: atomic { LIVES(me) && (busy[me] & BIT(c)) != 0 && REACHES(LEFT(me)) -> readEnds(me, c) }

/* The steps that concern one other rank: it tells us of a death or an abort. */
#define OTHER(o) \
	:: atomic { LIVES(me) && deadMsg[PAIR(o, me)] != 0 -> hearDead(me, o); i = 0; m = 0 } \
	:: atomic { LIVES(me) && abortMsg[PAIR(o, me)] != 0 -> m = abortMsg[PAIR(o, me)] - 1; breakBy(me, m); i = 0; m = 0 }

/* One Dead at a time: the lowest rank that is named first. */
inline hearDead(r, o) {
	m = 0;
	do
	:: (deadMsg[PAIR(o, r)] & BIT(m)) == 0 -> m++
	:: else -> break
	od;
	declare(r, m)
}

proctype rank(byte me) {
	byte i, m; /* zero between steps */
end:
	do
	/* It multicasts its block; each of the others gets it some time, or never. */
	:: atomic {
		LIVES(me) && phase[me] == RUN && snd[me] == TO_SEND ->
		snd[me] = LEAVING;
		sent = sent | BIT(me);
		do
		:: i < N ->
			if
			:: i != me && LIVES(i) -> flight[i] = flight[i] | BIT(me); DELIVER(i, me)
			:: i != me && LIVES(i) && losses > 0 -> losses = losses - LOST /* on the way to i */
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
	/* The network needs the send buffer no more. */
	:: atomic {
		LIVES(me) && snd[me] == LEAVING ->
		assert(!RELEASED(me)); /* nobody reads from a buffer after its owner's call ended */
		snd[me] = SENT;
		settle(me)
	}
	BLOCK(0)
	BLOCK(1)
#if N > 2
	BLOCK(2)
#endif
#if N > 3
	BLOCK(3)
#endif
	/* Cutoff: what was sent and is not here is asked of the left neighbour. */
	:: atomic {
		LIVES(me) && phase[me] == RUN && (sent & ~bits[me] & ~asked[me]) != 0 ->
		m = sent & ~bits[me] & ~asked[me];
		asked[me] = asked[me] | m;
		if
		:: LIVES(LEFT(me)) ->
			fetch[LEFT(me)] = fetch[LEFT(me)] | m;
#ifdef SWIFT
			asksUs(LEFT(me))
#endif
		:: else
		fi;
		m = 0
	}
	/* A Fetch of the right neighbour (Op.asksUs), an Avail of the left one (Op.available). */
	:: atomic { LIVES(me) && fetch[me] != 0 -> asksUs(me) }
	:: atomic { LIVES(me) && avail[me] != 0 -> available(me) }
	/* The Final of the right neighbour. */
	:: atomic {
		LIVES(me) && final[me] == COMING ->
		final[me] = GOT;
		settle(me)
	}
	/* A call that failed is made quiet: reads into its buffers are called off, others' out of them
	 * cut, and what the network still sends from them has left. Then the user is told. */
	:: atomic {
		LIVES(me) && phase[me] == FAILING && snd[me] != LEAVING ->
		phase[me] = FAILED;
		busy[me] = 0;
		want[me] = 0;
		good[me] = 0
	}
#if CRASHES > 0
	:: atomic { LIVES(me) && crashes > 0 -> crashes--; crash(me); i = 0 }
	/* The left neighbour, among those that are not known to be dead, has gone silent. */
	:: atomic { LIVES(me) && SILENT(WATCHED(me)) -> m = WATCHED(me); declare(me, m); i = 0; m = 0 }
#endif
#if ABORTS > 0
	:: atomic { LIVES(me) && aborts > 0 && blame[me] == 0 -> aborts--; aborter = aborter | BIT(me); breakBy(me, me); i = 0 }
#endif
#if CRASHES > 0 || ABORTS > 0
	OTHER(0)
	OTHER(1)
#if N > 2
	OTHER(2)
#endif
#if N > 3
	OTHER(3)
#endif
#endif
	od
}

/* When nothing can happen any more, every call has ended, and who is left knows of a failure. */
proctype judge() {
	byte i;
end:
	timeout -> atomic {
		do
		:: i < N ->
			assert(!LIVES(i) || RELEASED(i));
			assert(!LIVES(i) || (crashed | aborter) == 0 || blame[i] != 0);
			assert((crashed | aborter) != 0 || phase[i] == DONE);
			i++
		:: else -> break
		od
	}
}

init {
	byte r;
	atomic {
		do
		:: r < N ->
			bits[r] = SENDERS & BIT(r);
			good[r] = bits[r];
			if
			:: bits[r] != 0
			:: else -> snd[r] = SENT
			fi;
			run rank(r);
			r++
		:: else -> break
		od;
		run judge();
		r = 0
	}
}
