#ifndef ALLCAST_SHIM_H
#define ALLCAST_SHIM_H

#include <infiniband/verbs.h>
#include <stdint.h>

// Work requests and completions as plain numbers, so that Go can make and read them
// in its own memory. Functions return 0 or a count, or -errno.

enum { ac_batch = 64 }; // largest number of requests that one call posts, and of completions that it returns

struct ac_send { // a send, or a read
	uint64_t id;
	uint64_t addr0, addr1; // a segment with length 0 is left out
	uint32_t len0, key0, len1, key1;
	uint64_t remote; // read: where from
	uint32_t rkey;
	uint32_t imm;
	uint32_t op; // enum ibv_wr_opcode
	uint32_t signalled;
};

struct ac_done { // a completion
	uint64_t id;
	uint32_t status, op, len, imm, qp, src_qp, flags, vendor;
};

struct ac_ring { // receive slots: slot i is stride bytes at base + i * stride
	uint64_t base;
	uint64_t tag; // or-ed to the slot's number, that is the completion's id
	uint32_t stride, key;
};

struct ac_gid {
	uint8_t raw[16];
	uint32_t index, port, type, ifindex;
};

struct ac_port {
	uint32_t state, mtu, link, lid, gids, sm_lid;
	uint32_t max_qp_wr, max_cqe, max_sge, max_mr_high, rd_atom, init_rd_atom, max_qp, max_srq_wr, ports;
};

struct ac_mcast { // where a multicast group is
	uint8_t mgid[16];
	uint32_t mlid, qkey, qpn, sl;
};

struct ac_peer { // where a queue pair of a peer is
	uint8_t gid[16];
	uint32_t lid, qp, psn, mtu;
};

struct ibv_device **ac_devices(int *n);
int ac_query(struct ibv_context *, int port, struct ac_port *out);
int ac_gids(struct ibv_context *, struct ac_gid *out, int max);

struct ibv_srq *ac_srq(struct ibv_pd *, int depth);
int ac_ud_qp(struct ibv_pd *, struct ibv_cq *send, struct ibv_cq *recv, struct ibv_srq *, int depth_send, int port, uint32_t qkey, int *echo, struct ibv_qp **out);
int ac_rc_qp(struct ibv_pd *, struct ibv_cq *, int depth_send, int depth_recv, int port, struct ibv_qp **out);
int ac_rc_connect(struct ibv_qp *, const struct ac_peer *, int port, int link, int sgid_index, uint32_t psn, int rd_atom, int dest_rd_atom, int timeout, int retries);
struct ibv_ah *ac_peer_ah(struct ibv_pd *, const struct ac_peer *, int port, int link, int sgid_index);
int ac_ud_reset(struct ibv_qp *, int port, uint32_t qkey);
int ac_qp_state(struct ibv_qp *, int state);
struct ibv_ah *ac_mcast_ah(struct ibv_pd *, const struct ac_mcast *, int port, int link, int sgid_index, int hops, int tclass);
int ac_attach(struct ibv_qp *, const struct ac_mcast *, int on);

struct ibv_mr *ac_reg(struct ibv_pd *, uint64_t addr, uint64_t len, int write, int remote);

int ac_post(struct ibv_qp *, const struct ac_send *, int n, struct ibv_ah *, uint32_t qpn, uint32_t qkey, int *posted);
int ac_post_recv(struct ibv_qp *, struct ibv_srq *, const struct ac_ring *, const uint32_t *slots, int n);
int ac_poll(struct ibv_cq *, struct ac_done *out, int max, int spin, int arm);
int ac_receive(struct ibv_srq *, const struct ac_ring *, const uint32_t *slots, int n, struct ibv_cq *, struct ac_done *out, int max, int spin, int arm, int *post_err);
int ac_events(struct ibv_comp_channel *);

struct ac_async { // an asynchronous event
	struct ibv_async_event event;
	void *object; // queue pair, completion queue or receive queue; NULL: none
	uint32_t kind, qp, port;
};
int ac_async_take(struct ibv_context *, struct ac_async *out);
void ac_async_ack(struct ac_async *);

struct ac_group { // a group joined through the connection manager
	void *channel, *id;
	struct ac_mcast at; // as of the last join
	int status;         // of the last event
};
enum { ac_cm_joined = 1, ac_cm_lost, ac_cm_removed, ac_cm_moved, ac_cm_other }; // kinds of events
int ac_cm_join(uint32_t local, uint32_t group, const char *device, int port, int timeout_ms, struct ac_group *out);
int ac_cm_fd(const struct ac_group *);
int ac_cm_take(struct ac_group *);
int ac_cm_rejoin(struct ac_group *, uint32_t group);
void ac_cm_leave(struct ac_group *);

#endif
