/*
 * Fetch ring, final handshake and abort of one multicast collective, as in
 * internal/mcast (collective.go, fetch.go, intake.go) and internal/node (fail.go,
 * liveness.go). README.md lists what the model omits.
 *
 *   -DN=3         ranks, 2 to 4
 *   -DSENDERS=7   ranks that contribute a block, one bit per rank: all bits for an Allgather,
 *                 one for a Broadcast
 *   -DCRASHES=1   number of ranks that may die
 *   -DABORTS=1    number of calls of Abort by users
 *   -DDUPS=1      number of datagrams that the network may duplicate
 *   -DLOSSES=4    number of datagrams that it may lose; any number by default
 *
 * Two flags make the state space smaller, for models that would be too large:
 *
 *   -DSWIFT       Fetch and Avail take no time
 *   -DPROMPT      a datagram is lost, or arrives in no time
 *
 * Broken variants. The check must reject each of them, which shows that it can fail:
 *
 *   -DNO_HANDSHAKE  a rank completes without its right neighbour's Final
 *   -DNO_SENT       a rank completes while the network still sends from its buffer
 *   -DNO_QUIESCE    a failed call is reported before its buffers are out of reach
 *   -DNO_SPREAD     a rank that learns of a failure does not tell the others
 *   -DWAIT_ALL      a Fetch is answered only once all of its blocks have arrived
 *   -DLOOSE         a datagram is placed although a read of its chunk is in progress
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
#define LOST 0 /* no loss is counted, so there is no limit */
#endif

#define BIT(i)    (1 << (i))
#define LEFT(r)   (((r) + N - 1) % N)
#define RIGHT(r)  (((r) + 1) % N)
#define PAIR(s, r) ((s) * N + (r))

/* The state of a call on one rank. In DONE and FAILED the user owns the buffers and overwrites them. */
#define RUN 0
#define FAILING 1 /* not quiesced yet */
#define FAILED 2
#define DONE 3
#define RELEASED(r) (phase[r] >= FAILED)

/* One rank's multicast. LEAVING: datagrams are in flight, and the network still reads the buffer. */
#define TO_SEND 0
#define LEAVING 1
#define SENT 2

/* The right neighbour's Final. */
#define NO_FINAL 0
#define COMING 1
#define GOT 2

/* Masks have one bit per block. Rank i owns block i. */
byte phase[N];
byte snd[N];
byte bits[N];   /* blocks that have arrived, as the rank knows */
byte good[N];   /* blocks whose bytes in the buffer are right */
byte asked[N];  /* blocks requested from the left neighbour */
byte busy[N];   /* blocks that a read in progress writes */
byte want[N];   /* blocks that the right neighbour requested and that have not arrived */
byte flight[N]; /* datagrams that will reach this rank at some time */
byte fetch[N];  /* Fetch in flight to this rank */
byte avail[N];  /* Avail in flight to this rank */
byte final[N];  /* state of the Final to this rank */
byte sent;      /* blocks announced as sent */

byte dead[N];           /* ranks that this rank knows to be lost */
byte blame[N];          /* rank that broke its communicator, + 1; 0: not broken */
byte deadMsg[N * N];    /* Dead messages in flight, by sender and receiver */
byte abortMsg[N * N];   /* Abort messages in flight: the culprit + 1 */
byte crashed;
byte aborter;
byte crashes = CRASHES;
byte aborts = ABORTS;
byte dups = DUPS;
byte losses = LOSSES;

#define LIVES(r) ((crashed & BIT(r)) == 0)

/* settle models Collective.settle, which ends every step. */
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
			assert(good[r] == SENDERS); /* a completed call has the right data */
			phase[r] = DONE;
			good[r] = 0; /* the user overwrites the buffer */
			want[r] = 0
		:: else
		fi
	:: else
	fi
}

/* available: the left neighbour's Avail arrives, and reads start. */
inline available(r) {
	if
	:: phase[r] == RUN -> busy[r] = busy[r] | (avail[r] & asked[r] & ~bits[r])
	:: else
	fi;
	avail[r] = 0
}

/* offer tells the right neighbour which of its requested blocks it can read now. */
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

/* asksUs: the right neighbour's Fetch arrives. */
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

/* gained: chunk c is now in the buffer. */
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

/* place writes a block into a buffer, whose call must not have ended. */
inline place(r, c, right) {
	assert(!RELEASED(r)); /* no write to a buffer after its owner's call has ended */
	if
	:: right -> good[r] = good[r] | BIT(c)
	:: else -> good[r] = good[r] & ~BIT(c)
	fi
}

/* fail: the communicator breaks on this rank (Node.breakComm). */
inline fail(r, culprit) {
	if
	:: blame[r] == 0 ->
		assert((crashed | aborter) & BIT(culprit)); /* the culprit really failed */
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
 * declare: this rank declares d lost, tells all ranks and breaks its communicator (Node.declare).
 * Messages that their receiver would always ignore are dropped.
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

/* breakBy: this rank learns of an Abort, or calls Abort, and tells the others. */
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

/* crash: each message of a dying rank still arrives, or is lost with its connections. */
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
	/* Clear the state of the dead rank: no other rank depends on it. */
	bits[r] = 0; good[r] = 0; asked[r] = 0; busy[r] = 0; want[r] = 0;
	flight[r] = 0; fetch[r] = 0; avail[r] = 0; final[r] = 0; dead[r] = 0; blame[r] = 0
}

/* The rank that r watches: the nearest to its left that r does not know to be dead. */
#define KNOWS(r, d) ((dead[r] & BIT(d)) != 0)
#if N == 2
#define WATCHED(r) LEFT(r)
#elif N == 3
#define WATCHED(r) (KNOWS(r, LEFT(r)) -> RIGHT(r) : LEFT(r))
#else
#define WATCHED(r) (!KNOWS(r, LEFT(r)) -> LEFT(r) : (!KNOWS(r, (r + 2) % N) -> (r + 2) % N : RIGHT(r)))
#endif
#define SILENT(d) (!LIVES(d) && !KNOWS(me, d))

/* Steps of one block. */

/* arrive: a datagram arrives (Intake.Judge). */
inline arrive(r, c) {
	if
	:: dups > 0 -> dups-- /* it arrives again later */
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
		:: else /* the receive worker does not know of the failure yet */
		fi
	:: else /* a duplicate, a late datagram, or one of an unknown operation */
	fi
}

/* readEnds: a read has copied one block from the left neighbour's buffer to this rank's. */
inline readEnds(r, c) {
	assert(!RELEASED(LEFT(r))); /* no read from a buffer after its owner's call has ended */
	place(r, c, (good[LEFT(r)] & BIT(c)) != 0);
	busy[r] = busy[r] & ~BIT(c);
	if
	:: phase[r] == RUN -> gained(r, c)
	:: else
	fi
}

/* The buffer of a failed, quiesced call is out of reach: a read from it never ends. */
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

/* Steps of one other rank: it reports a death or an abort. */
#define OTHER(o) \
	:: atomic { LIVES(me) && deadMsg[PAIR(o, me)] != 0 -> hearDead(me, o); i = 0; m = 0 } \
	:: atomic { LIVES(me) && abortMsg[PAIR(o, me)] != 0 -> m = abortMsg[PAIR(o, me)] - 1; breakBy(me, m); i = 0; m = 0 }

/* hearDead handles one reported death at a time, the lowest rank first. */
inline hearDead(r, o) {
	m = 0;
	do
	:: (deadMsg[PAIR(o, r)] & BIT(m)) == 0 -> m++
	:: else -> break
	od;
	declare(r, m)
}

proctype rank(byte me) {
	byte i, m; /* zero between steps, to keep states few */
end:
	do
	/* The rank multicasts its block. Each other rank gets it at some time, or never. */
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
	/* The network no longer needs the send buffer. */
	:: atomic {
		LIVES(me) && snd[me] == LEAVING ->
		assert(!RELEASED(me)); /* no read from a buffer after its owner's call has ended */
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
	/* Cutoff: the rank requests blocks that were sent and have not arrived from its left neighbour. */
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
	/* A Fetch from the right neighbour, or an Avail from the left one. */
	:: atomic { LIVES(me) && fetch[me] != 0 -> asksUs(me) }
	:: atomic { LIVES(me) && avail[me] != 0 -> available(me) }
	/* The Final of the right neighbour arrives. */
	:: atomic {
		LIVES(me) && final[me] == COMING ->
		final[me] = GOT;
		settle(me)
	}
	/* A failed call is quiesced: reads into its buffers are cancelled, reads of other ranks from them
	 * are cut off, and the network no longer sends from them. Then the call returns. */
	:: atomic {
		LIVES(me) && phase[me] == FAILING && snd[me] != LEAVING ->
		phase[me] = FAILED;
		busy[me] = 0;
		want[me] = 0;
		good[me] = 0
	}
#if CRASHES > 0
	:: atomic { LIVES(me) && crashes > 0 -> crashes--; crash(me); i = 0 }
	/* The watched rank has gone silent. */
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

/* When no step is possible, every call has ended, and every living rank knows of a failure. */
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
