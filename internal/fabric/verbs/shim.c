//go:build verbs

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct ibv_device **ac_devices(int *n) { return ibv_get_device_list(n); }

int ac_query(struct ibv_context *ctx, int port, struct ac_port *out) {
	struct ibv_device_attr dev;
	struct ibv_port_attr p;
	int rc = ibv_query_device(ctx, &dev);
	if (rc)
		return -rc;
	rc = ibv_query_port(ctx, port, &p);
	if (rc)
		return -rc;
	memset(out, 0, sizeof(*out));
	out->state = p.state;
	out->mtu = p.active_mtu;
	out->link = p.link_layer;
	out->lid = p.lid;
	out->gids = p.gid_tbl_len;
	out->sm_lid = p.sm_lid;
	out->max_qp_wr = dev.max_qp_wr;
	out->max_cqe = dev.max_cqe;
	out->max_sge = dev.max_sge;
	out->rd_atom = dev.max_qp_rd_atom;
	out->init_rd_atom = dev.max_qp_init_rd_atom;
	out->max_qp = dev.max_qp;
	out->ports = dev.phys_port_cnt;
	out->max_srq_wr = dev.max_srq > 0 ? dev.max_srq_wr : 0;
	return 0;
}

int ac_gids(struct ibv_context *ctx, struct ac_gid *out, int max) {
	struct ibv_gid_entry e[256];
	if (max > 256)
		max = 256;
	ssize_t n = ibv_query_gid_table(ctx, e, max, 0);
	for (ssize_t i = 0; i < n; i++) {
		memcpy(out[i].raw, e[i].gid.raw, 16);
		out[i].index = e[i].gid_index;
		out[i].port = e[i].port_num;
		out[i].type = e[i].gid_type;
		out[i].ifindex = e[i].ndev_ifindex;
	}
	return (int)n; // -errno if it failed
}

struct ibv_srq *ac_srq(struct ibv_pd *pd, int depth) {
	struct ibv_srq_init_attr a = {.attr = {.max_wr = depth, .max_sge = 1}};
	return ibv_create_srq(pd, &a);
}

// Takes a UD queue pair from RESET to RTS.
static int ready(struct ibv_qp *qp, int port, uint32_t qkey) {
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = port, .qkey = qkey};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
	int rc = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (!rc)
		rc = ibv_modify_qp(qp, &rtr, IBV_QP_STATE);
	if (!rc)
		rc = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return rc;
}

// A queue pair in RTS. echo says whether it will hear what it sends itself.
int ac_ud_qp(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv, struct ibv_srq *srq, int depth_send, int port, uint32_t qkey, int *echo, struct ibv_qp **out) {
	struct ibv_qp_init_attr_ex a = {
		.send_cq = send, .recv_cq = recv, .srq = srq, .qp_type = IBV_QPT_UD, .pd = pd,
		.cap = {.max_send_wr = depth_send, .max_send_sge = 2},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	};
	*echo = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &a);
	if (!qp) { // few devices can do that
		*echo = 1;
		a.comp_mask = IBV_QP_INIT_ATTR_PD;
		a.create_flags = 0;
		qp = ibv_create_qp_ex(pd->context, &a);
	}
	if (!qp)
		return -errno;
	int rc = ready(qp, port, qkey);
	if (rc) {
		ibv_destroy_qp(qp);
		return -rc;
	}
	*out = qp;
	return 0;
}

// Empties a queue pair of any state, and makes it usable again.
int ac_ud_reset(struct ibv_qp *qp, int port, uint32_t qkey) {
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	int rc = ibv_modify_qp(qp, &reset, IBV_QP_STATE);
	return -(rc ? rc : ready(qp, port, qkey));
}

// A queue pair in INIT: receives can be posted.
int ac_rc_qp(struct ibv_pd *pd, struct ibv_cq *cq, int depth_send, int depth_recv, int port, struct ibv_qp **out) {
	struct ibv_qp_init_attr a = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth_send, .max_recv_wr = depth_recv, .max_send_sge = 2, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	if (!qp)
		return -errno;
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
	int rc = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc) {
		ibv_destroy_qp(qp);
		return -rc;
	}
	*out = qp;
	return 0;
}

// RoCE always has a global header; on InfiniBand the LID is enough within a subnet.
static struct ibv_ah_attr path(const struct ac_peer *p, int port, int link, int sgid_index) {
	struct ibv_ah_attr a = {.dlid = p->lid, .port_num = port};
	if (link == IBV_LINK_LAYER_ETHERNET) {
		a.is_global = 1;
		memcpy(a.grh.dgid.raw, p->gid, 16);
		a.grh.sgid_index = sgid_index;
		a.grh.hop_limit = 64;
	}
	return a;
}

struct ibv_ah *ac_peer_ah(struct ibv_pd *pd, const struct ac_peer *p, int port, int link, int sgid_index) {
	struct ibv_ah_attr a = path(p, port, link, sgid_index);
	return ibv_create_ah(pd, &a);
}

int ac_rc_connect(struct ibv_qp *qp, const struct ac_peer *p, int port, int link, int sgid_index, uint32_t psn, int rd_atom, int dest_rd_atom, int timeout, int retries) {
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = p->mtu, .dest_qp_num = p->qp, .rq_psn = p->psn,
		.max_dest_rd_atomic = dest_rd_atom, .min_rnr_timer = 12, // 0.64 ms
		.ah_attr = path(p, port, link, sgid_index),
	};
	int rc = ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc)
		return -rc;
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = psn, .max_rd_atomic = rd_atom,
		.timeout = timeout, .retry_cnt = retries, .rnr_retry = 6, // 7 is "for ever"
	};
	rc = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return -rc;
}

int ac_qp_state(struct ibv_qp *qp, int state) {
	struct ibv_qp_attr a = {.qp_state = state};
	return -ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

struct ibv_ah *ac_mcast_ah(struct ibv_pd *pd, const struct ac_mcast *to, int port, int link, int sgid_index, int hops, int tclass) {
	struct ibv_ah_attr a = {.is_global = 1, .port_num = port, .dlid = link == IBV_LINK_LAYER_ETHERNET ? 0 : to->mlid, .sl = to->sl};
	memcpy(a.grh.dgid.raw, to->mgid, 16);
	a.grh.sgid_index = sgid_index;
	a.grh.hop_limit = hops;
	a.grh.traffic_class = tclass;
	return ibv_create_ah(pd, &a);
}

int ac_attach(struct ibv_qp *qp, const struct ac_mcast *to, int on) {
	union ibv_gid g;
	memcpy(g.raw, to->mgid, 16);
	return -(on ? ibv_attach_mcast(qp, &g, to->mlid) : ibv_detach_mcast(qp, &g, to->mlid));
}

struct ibv_mr *ac_reg(struct ibv_pd *pd, uint64_t addr, uint64_t len, int write, int remote) {
	int access = (write ? IBV_ACCESS_LOCAL_WRITE : 0) | (remote ? IBV_ACCESS_REMOTE_READ : 0);
	return ibv_reg_mr(pd, (void *)(uintptr_t)addr, len, access);
}

// Posts requests with one doorbell. posted is how many the queue took.
int ac_post(struct ibv_qp *qp, const struct ac_send *s, int n, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, int *posted) {
	struct ibv_send_wr wr[ac_batch], *bad = NULL;
	struct ibv_sge sge[2 * ac_batch];
	*posted = 0;
	if (n > ac_batch)
		return -E2BIG;
	for (int i = 0; i < n; i++) {
		struct ibv_sge *g = &sge[2 * i];
		int k = 0;
		memset(&wr[i], 0, sizeof(wr[i]));
		if (s[i].len0)
			g[k++] = (struct ibv_sge){s[i].addr0, s[i].len0, s[i].key0};
		if (s[i].len1)
			g[k++] = (struct ibv_sge){s[i].addr1, s[i].len1, s[i].key1};
		wr[i].wr_id = s[i].id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = g;
		wr[i].num_sge = k;
		wr[i].opcode = s[i].op;
		wr[i].send_flags = s[i].signalled ? IBV_SEND_SIGNALED : 0;
		wr[i].imm_data = htonl(s[i].imm);
		if (ah) {
			wr[i].wr.ud.ah = ah;
			wr[i].wr.ud.remote_qpn = qpn;
			wr[i].wr.ud.remote_qkey = qkey;
		} else {
			wr[i].wr.rdma.remote_addr = s[i].remote;
			wr[i].wr.rdma.rkey = s[i].rkey;
		}
	}
	int rc = ibv_post_send(qp, wr, &bad);
	*posted = rc ? (bad ? (int)(bad - wr) : 0) : n;
	return -rc;
}

// Posts receive slots to a queue pair, or to a shared receive queue where there is one.
int ac_post_recv(struct ibv_qp *qp, struct ibv_srq *srq, const struct ac_ring *r, const uint32_t *slots, int n) {
	struct ibv_recv_wr wr[ac_batch], *bad;
	struct ibv_sge sge[ac_batch];
	for (int done = 0; done < n;) {
		int k = n - done < ac_batch ? n - done : ac_batch;
		for (int i = 0; i < k; i++) {
			uint32_t slot = slots[done + i];
			sge[i] = (struct ibv_sge){r->base + (uint64_t)slot * r->stride, r->stride, r->key};
			wr[i] = (struct ibv_recv_wr){.wr_id = r->tag | slot, .next = i + 1 < k ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1};
		}
		int rc = srq ? ibv_post_srq_recv(srq, wr, &bad) : ibv_post_recv(qp, wr, &bad);
		if (rc)
			return -rc;
		done += k;
	}
	return 0;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static int poll_once(struct ibv_cq *cq, struct ac_done *out, int max) {
	struct ibv_wc wc[ac_batch];
	if (max > ac_batch)
		max = ac_batch;
	int n = ibv_poll_cq(cq, max, wc);
	if (n < 0)
		return errno ? -errno : -EIO;
	for (int i = 0; i < n; i++)
		out[i] = (struct ac_done){
			.id = wc[i].wr_id, .status = wc[i].status, .op = wc[i].opcode, .len = wc[i].byte_len, .imm = ntohl(wc[i].imm_data),
			.qp = wc[i].qp_num, .src_qp = wc[i].src_qp, .flags = wc[i].wc_flags, .vendor = wc[i].vendor_err,
		};
	return n;
}

// Looks once and then spin times more. If there is nothing and arm is set, the next
// completion makes an event; what came before that is looked for once more.
int ac_poll(struct ibv_cq *cq, struct ac_done *out, int max, int spin, int arm) {
	int n = poll_once(cq, out, max);
	for (; n == 0 && spin > 0; spin--) {
		relax();
		n = poll_once(cq, out, max);
	}
	if (n || !arm)
		return n;
	int rc = ibv_req_notify_cq(cq, 0);
	if (rc)
		return -rc;
	return poll_once(cq, out, max);
}

// Posts slots again, then looks for completions.
int ac_receive(struct ibv_srq *srq, const struct ac_ring *r, const uint32_t *slots, int n, struct ibv_cq *cq, struct ac_done *out, int max, int spin, int arm, int *post_err) {
	*post_err = ac_post_recv(NULL, srq, r, slots, n);
	return ac_poll(cq, out, max, spin, arm);
}

// Takes one event of a device whose descriptor does not block: 1, or 0 if there is none. The caller
// acknowledges it.
int ac_async_take(struct ibv_context *ctx, struct ac_async *out) {
	memset(out, 0, sizeof(*out));
	while (ibv_get_async_event(ctx, &out->event))
		if (errno != EINTR)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	out->kind = out->event.event_type;
	switch (out->event.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->object = out->event.element.cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->object = out->event.element.srq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
		out->object = out->event.element.qp;
		out->qp = out->event.element.qp->qp_num;
		break;
	case IBV_EVENT_WQ_FATAL:
	case IBV_EVENT_DEVICE_FATAL:
		break;
	default: // of a port
		out->port = out->event.element.port_num;
	}
	return 1;
}

void ac_async_ack(struct ac_async *e) { ibv_ack_async_event(&e->event); }

// Takes all events of a channel that does not block, and says how many.
int ac_events(struct ibv_comp_channel *ch) {
	struct ibv_cq *cq;
	void *ctx;
	int n = 0;
	for (;;) {
		if (ibv_get_cq_event(ch, &cq, &ctx) == 0) {
			ibv_ack_cq_events(cq, 1);
			n++;
		} else if (errno != EINTR) {
			return errno == EAGAIN || errno == EWOULDBLOCK || n > 0 ? n : -errno;
		}
	}
}
