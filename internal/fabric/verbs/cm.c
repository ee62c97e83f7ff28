//go:build verbs

// Joining a group through the connection manager: on InfiniBand it is the one that asks
// the subnet manager, and knows the group's LID and key.

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <string.h>

// Takes one event of a group: its kind, or 0 if there is none and the channel does not block.
int ac_cm_take(struct ac_group *g) {
	struct rdma_cm_event *e;
	while (rdma_get_cm_event(g->channel, &e))
		if (errno != EINTR)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	int kind = ac_cm_other;
	switch (e->event) {
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		kind = ac_cm_joined;
		memcpy(g->at.mgid, e->param.ud.ah_attr.grh.dgid.raw, 16);
		g->at.mlid = e->param.ud.ah_attr.dlid;
		g->at.qkey = e->param.ud.qkey;
		g->at.qpn = e->param.ud.qp_num;
		g->at.sl = e->param.ud.ah_attr.sl;
		break;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		kind = ac_cm_lost;
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		kind = ac_cm_removed;
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		kind = ac_cm_moved;
		break;
	default:
		break;
	}
	g->status = e->status;
	rdma_ack_cm_event(e);
	return kind;
}

int ac_cm_fd(const struct ac_group *g) { return ((struct rdma_event_channel *)g->channel)->fd; }

static int joined(struct ac_group *g, int timeout_ms) {
	struct pollfd p = {.fd = ac_cm_fd(g), .events = POLLIN};
	int rc;
	do
		rc = poll(&p, 1, timeout_ms);
	while (rc < 0 && errno == EINTR);
	if (rc <= 0)
		return rc ? -errno : -ETIMEDOUT;
	rc = ac_cm_take(g);
	if (rc == ac_cm_joined)
		return 0;
	return rc < 0 ? rc : g->status < 0 ? g->status : -EHOSTUNREACH;
}

// Asks for a group again, whose membership has ended. An event tells the answer.
int ac_cm_rejoin(struct ac_group *g, uint32_t group) {
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(group)};
	rdma_leave_multicast(g->id, (struct sockaddr *)&to); // fails where nothing is left of it
	return rdma_join_multicast(g->id, (struct sockaddr *)&to, NULL) ? -errno : 0;
}

int ac_cm_join(uint32_t local, uint32_t group, const char *device, int port, int timeout_ms, struct ac_group *out) {
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(local)};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(group)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;
	int rc = 0;
	memset(out, 0, sizeof(*out));
	if (!ch)
		return -errno;
	out->channel = ch;
	if (rdma_create_id(ch, &id, NULL, RDMA_PS_UDP))
		rc = -errno;
	out->id = id;
	if (!rc && rdma_bind_addr(id, (struct sockaddr *)&from))
		rc = -errno;
	if (!rc && (!id->verbs || strcmp(ibv_get_device_name(id->verbs->device), device) || id->port_num != port))
		rc = -EXDEV; // the address is another device's
	if (!rc && rdma_join_multicast(id, (struct sockaddr *)&to, NULL))
		rc = -errno;
	if (!rc)
		rc = joined(out, timeout_ms);
	if (rc)
		ac_cm_leave(out);
	return rc;
}

// Destroying the id leaves its groups.
void ac_cm_leave(struct ac_group *g) {
	if (g->id)
		rdma_destroy_id(g->id);
	if (g->channel)
		rdma_destroy_event_channel(g->channel);
	g->id = g->channel = NULL;
}
