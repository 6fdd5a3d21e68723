#include "proto/portmap/portmap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "proto/portmap/embedded.h"
#include "proto/portmap/registrar.h"

#define MAX_OFFERS 32

/* Why the server registers instead of serving. */
enum reason {
	REASON_CHOSEN,       /* mode system */
	REASON_PORT_TAKEN,   /* auto: another program has the port */
	REASON_NO_PRIVILEGE, /* auto: the server lacks the privilege for the port */
};

struct hf_portmap {
	struct hf_loop *loop;         /* (c) */
	struct hf_rpc_client *client; /* (c) */
	enum hf_portmap_mode mode;    /* (c) */
	enum hf_portmap_role role;
	enum reason reason;
	uint16_t port;
	struct hf_addr listen[HF_PORTMAP_MAX_LISTEN + 2]; /* with the loopback addresses of both families */
	size_t n_listen;
	struct hf_portmap_offer offers[MAX_OFFERS];
	size_t n_offers;

	struct hf_embedded *embedded;   /* while serving */
	struct hf_registrar *registrar; /* while registering */
	struct hf_registrar_report last;
	bool has_round; /* @last is the report of a round */
	bool is_stopping;

	struct hf_task telling; /* calls ready, then done */
	void (*ready)(void *user);
	void *ready_user;
};

/* Being rpcbind */

static int serve(struct hf_portmap *portmap)
{
	int r = hf_embedded_new(&portmap->embedded, portmap->loop, portmap->listen, portmap->n_listen,
				portmap->offers, portmap->n_offers, &portmap->port);

	if (r < 0)
		return r;
	portmap->role = HF_PORTMAP_SERVES;
	hf_log_info("serving the port mapper: clients find the server's programs there",
		    "port=%u programs=%zu", portmap->port, portmap->n_offers);
	return 0;
}

static int explain(const struct hf_portmap *portmap, int r)
{
	switch (r) {
	case -EADDRINUSE:
		hf_log_error("the portmap port is in use, most likely by rpcbind: stop it (systemctl stop "
			     "rpcbind.socket rpcbind), or register with it (server.portmap: system); \"ss "
			     "-lpn\" shows which program has it",
			     "port=%u", portmap->port);
		break;
	case -EACCES:
	case -EPERM:
		hf_log_error("the portmap port needs privilege: start as root, or with the capability "
			     "CAP_NET_BIND_SERVICE, or set server.portmap to off",
			     "port=%u", portmap->port);
		break;
	default:
		hf_log_error("cannot serve the portmap port", "port=%u error=\"%s\"", portmap->port,
			     strerror(-r));
		break;
	}
	return r;
}

/* Registering */

static void tell_ready(struct hf_portmap *portmap)
{
	void (*ready)(void *user) = portmap->ready;

	portmap->ready = NULL;
	if (ready)
		ready(portmap->ready_user);
}

static void warn_lost(const struct hf_portmap *portmap)
{
	static const char *const texts[] = {
		[REASON_CHOSEN] =
			"no rpcbind answers: clients cannot find NFS, NLM and NSM, and their locks hang; "
			"start it (systemctl start rpcbind), or serve the port (server.portmap: "
			"embedded); trying again every 30 s",
		[REASON_PORT_TAKEN] =
			"the program on the portmap port does not answer as rpcbind: clients cannot find "
			"NFS, NLM and NSM, and their locks hang; trying again every 30 s",
		[REASON_NO_PRIVILEGE] =
			"the portmap port needs privilege, and no rpcbind runs: clients cannot "
			"find NLM and NSM, kernel clients' locks will hang (mount with nolock); "
			"start as root, or with CAP_NET_BIND_SERVICE, or start rpcbind",
	};

	hf_log_warn(texts[portmap->reason], "port=%u", portmap->port);
}

static void on_checked(void *user, const struct hf_registrar_report *report)
{
	struct hf_portmap *portmap = user;
	bool was_found = portmap->has_round && portmap->last.is_found;

	if (!report->is_found && (was_found || !portmap->has_round))
		warn_lost(portmap);
	else if (report->is_found && !was_found)
		hf_log_info("registered with the system's rpcbind: clients find the server's programs there",
			    "port=%u rpcbind_version=%u registered=%zu of=%zu", portmap->port,
			    report->version, report->n_present, report->n_wanted);
	else if (report->n_renewed)
		hf_log_info("registrations with rpcbind were missing and are renewed", "n=%zu",
			    report->n_renewed);
	portmap->last = *report;
	portmap->has_round = true;
	tell_ready(portmap);
}

static int register_offer(struct hf_registrar *registrar, const struct hf_portmap_offer *offer)
{
	for (uint32_t i = 0; i < offer->program->n_versions; i++) {
		for (int netid = 0; netid < HF_N_NETIDS; netid++) {
			int r = 0;

			if (offer->netids & HF_NETID_BIT(netid))
				r = hf_registrar_add(registrar, offer->program->program,
						     offer->program->versions[i].version,
						     (enum hf_netid)netid, offer->port);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int start_registering(struct hf_portmap *portmap, enum reason reason)
{
	int r;

	if (portmap->port == 0) {
		hf_log_error("the port of the system's rpcbind must be known: set server.portmap_port to 111",
			     "port=0");
		return -EINVAL;
	}
	portmap->reason = reason;
	r = hf_registrar_new(&portmap->registrar, portmap->loop, portmap->client, portmap->port, on_checked,
			     portmap);
	for (size_t i = 0; i < portmap->n_offers && r == 0; i++)
		r = register_offer(portmap->registrar, &portmap->offers[i]);
	if (r == 0)
		r = hf_registrar_start(portmap->registrar);
	if (r == 0)
		portmap->role = HF_PORTMAP_REGISTERS;
	return hf_trace(r);
}

/* Choosing */

static int choose(struct hf_portmap *portmap)
{
	int r;

	switch (portmap->mode) {
	case HF_PORTMAP_OFF:
		portmap->port = 0;
		hf_log_info("portmap is off: clients must be told the server's port, and kernel clients "
			    "cannot lock",
			    "mode=off");
		return 0;
	case HF_PORTMAP_SYSTEM:
		return start_registering(portmap, REASON_CHOSEN);
	case HF_PORTMAP_EMBEDDED:
		r = serve(portmap);
		return r < 0 ? explain(portmap, r) : 0;
	case HF_PORTMAP_AUTO:
		break;
	}
	r = serve(portmap);
	if (r == -EADDRINUSE)
		return start_registering(portmap, REASON_PORT_TAKEN);
	if (r == -EACCES || r == -EPERM)
		return start_registering(portmap, REASON_NO_PRIVILEGE);
	return r < 0 ? explain(portmap, r) : 0;
}

static void on_telling(struct hf_task *task)
{
	tell_ready(hf_container_of(task, struct hf_portmap, telling));
	/* the portmap may be gone here */
}

int hf_portmap_start(struct hf_portmap *portmap, void (*ready)(void *user), void *user)
{
	int r = choose(portmap);

	if (r < 0)
		return r;
	portmap->ready = ready;
	portmap->ready_user = user;
	if (portmap->role != HF_PORTMAP_REGISTERS)
		hf_loop_defer(portmap->loop, &portmap->telling);
	return 0;
}

void hf_portmap_check(struct hf_portmap *portmap)
{
	if (portmap->registrar)
		hf_registrar_check(portmap->registrar);
}

void hf_portmap_stop(struct hf_portmap *portmap, void (*done)(void *user), void *user)
{
	if (portmap->is_stopping)
		return;
	portmap->is_stopping = true;
	portmap->ready = NULL; /* the caller no longer waits for it */
	if (portmap->registrar) {
		hf_registrar_stop(portmap->registrar, done, user);
		return;
	}
	if (portmap->embedded)
		hf_embedded_close(portmap->embedded);
	portmap->ready = done;
	portmap->ready_user = user;
	hf_loop_defer(portmap->loop, &portmap->telling);
}

/* Making and freeing */

/* Local programs reach the port mapper over loopback, whichever addresses serve clients. */
static void add_loopback(struct hf_portmap *portmap, int family, const char *loopback)
{
	bool is_wanted = false;

	for (size_t i = 0; i < portmap->n_listen; i++) {
		const struct hf_addr *addr = &portmap->listen[i];

		if (addr->family != family)
			continue;
		if (hf_addr_is_any(addr) || hf_addr_is_loopback(addr))
			return;
		is_wanted = true;
	}
	if (is_wanted)
		hf_addr_parse(&portmap->listen[portmap->n_listen++], loopback);
}

static int copy_config(struct hf_portmap *portmap, const struct hf_portmap_config *config)
{
	if (config->n_listen > HF_PORTMAP_MAX_LISTEN || config->n_offers > MAX_OFFERS)
		return hf_trace(-ENOSPC);
	portmap->mode = config->mode;
	portmap->port = config->port;
	for (size_t i = 0; i < config->n_listen; i++) {
		portmap->listen[i] = config->listen[i];
		portmap->listen[i].port = 0;
	}
	portmap->n_listen = config->n_listen;
	add_loopback(portmap, AF_INET, "127.0.0.1");
	add_loopback(portmap, AF_INET6, "::1");
	for (size_t i = 0; i < config->n_offers; i++)
		portmap->offers[i] = config->offers[i];
	portmap->n_offers = config->n_offers;
	return 0;
}

int hf_portmap_new(struct hf_portmap **portmapp, struct hf_loop *loop, struct hf_rpc_client *client,
		   const struct hf_portmap_config *config)
{
	struct hf_portmap *portmap = calloc(1, sizeof(*portmap));
	int r;

	if (!portmap)
		return hf_trace(-ENOMEM);
	portmap->loop = loop;
	portmap->client = client;
	hf_task_init(&portmap->telling, on_telling);
	r = copy_config(portmap, config);
	if (r < 0) {
		free(portmap);
		return r;
	}
	*portmapp = portmap;
	return 0;
}

struct hf_portmap *hf_portmap_free(struct hf_portmap *portmap)
{
	if (!portmap)
		return NULL;
	hf_task_cancel(&portmap->telling);
	hf_registrar_free(portmap->registrar);
	hf_embedded_free(portmap->embedded);
	free(portmap);
	return NULL;
}

/* Sight */

enum hf_portmap_role hf_portmap_role(const struct hf_portmap *portmap)
{
	return portmap->role;
}

uint16_t hf_portmap_port(const struct hf_portmap *portmap)
{
	return portmap->port;
}

static size_t count_mappings(const struct hf_portmap *portmap)
{
	size_t n = 0;

	for (size_t i = 0; i < portmap->n_offers; i++)
		n += (size_t)__builtin_popcount(portmap->offers[i].netids) *
		     portmap->offers[i].program->n_versions;
	return n;
}

void hf_portmap_counts(const struct hf_portmap *portmap, struct hf_portmap_counts *countsp)
{
	const struct hf_rpcbind *rpcbind = portmap->embedded ? hf_embedded_rpcbind(portmap->embedded) : NULL;
	size_t wanted = count_mappings(portmap);

	*countsp = (struct hf_portmap_counts){
		.wanted = wanted,
		.registered = rpcbind ? wanted : portmap->last.n_present,
		.foreign = rpcbind ? rpcbind->mappings.n_foreign : 0,
	};
}

void hf_portmap_show_limits(const struct hf_portmap *portmap, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_limit_use own[HF_N_LIMITS] = { 0 };
	const struct hf_mappings *mappings;

	if (!portmap->embedded)
		return;
	hf_embedded_show_limits(portmap->embedded, own);
	uses[HF_LIMIT_UDP_LISTS].used = HF_MAX(uses[HF_LIMIT_UDP_LISTS].used, own[HF_LIMIT_UDP_LISTS].used);
	uses[HF_LIMIT_UDP_LISTS].refused += own[HF_LIMIT_UDP_LISTS].refused;
	uses[HF_LIMIT_MAPPER_CONNECTIONS] = own[HF_LIMIT_CONNECTIONS];
	uses[HF_LIMIT_MAPPER_CONNECTIONS_PER_ADDRESS] = own[HF_LIMIT_CONNECTIONS_PER_ADDRESS];
	mappings = &hf_embedded_rpcbind(portmap->embedded)->mappings;
	uses[HF_LIMIT_MAPPINGS] = (struct hf_limit_use){ .used = mappings->n_foreign,
							 .max = HF_MAPPINGS_MAX_FOREIGN,
							 .refused = mappings->n_refused };
	uses[HF_LIMIT_MAPPINGS_UNPRIVILEGED] =
		(struct hf_limit_use){ .used = mappings->n_unknown,
				       .max = HF_MAPPINGS_MAX_UNKNOWN,
				       .refused = mappings->n_refused_unknown };
}
