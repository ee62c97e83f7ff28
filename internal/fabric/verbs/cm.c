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

static int joined(struct ac_group *g, int timeout_ms) {
	struct rdma_event_channel *ch = g->channel;
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	int rc;
	do
		rc = poll(&p, 1, timeout_ms);
	while (rc < 0 && errno == EINTR);
	if (rc == 0)
		return -ETIMEDOUT;
	struct rdma_cm_event *e;
	if (rc < 0 || rdma_get_cm_event(ch, &e))
		return -errno;
	rc = 0;
	if (e->event == RDMA_CM_EVENT_MULTICAST_JOIN) {
		memcpy(g->mgid, e->param.ud.ah_attr.grh.dgid.raw, 16);
		g->mlid = e->param.ud.ah_attr.dlid;
		g->qkey = e->param.ud.qkey;
		g->qpn = e->param.ud.qp_num;
		g->sl = e->param.ud.ah_attr.sl;
	} else {
		rc = e->status < 0 ? e->status : -EHOSTUNREACH;
	}
	rdma_ack_cm_event(e);
	return rc;
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
