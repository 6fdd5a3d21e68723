#include "cluster/witness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "cluster/helper.h"
#include "cluster/host.h"
#include "loop/loop.h"
#include "store/service.h"

#define TRIES 3 /* to reach the database, each for half a lease; then the lease is over */

struct hf_witness {
	int socket;
};

struct message {
	char owner[HF_SERVICE_OWNER];
};

/* In the witness */

static void give_up(const struct hf_witness_options *options, struct hf_host *host, const char *owner)
{
	struct hf_service *service = NULL;
	char error[256] = "";
	int r = -ENOMEM;

	if (options->n_addresses)
		(void)hf_addresses_give_up(host, options->addresses, options->n_addresses, error,
					   sizeof(error));
	if (hf_service_new(&service, options->postgres, options->service, options->lease_ns / 2) == 0) {
		for (int i = 0; i < TRIES && r < 0 && r != -ESTALE; i++)
			r = hf_service_hand_over(service, owner, "");
	}
	if (r == 0)
		hf_log_warn("the process that served has died: the service is handed over", "service=%s",
			    options->service);
	else if (r != -ESTALE)
		hf_log_warn("the process that served has died: the other nodes wait for the end of its lease",
			    "service=%s reason=%s", options->service,
			    service ? hf_service_message(service) : "no memory");
	hf_service_free(service);
}

static void watch(void *user, int socket)
{
	const struct hf_witness_options *options = user;
	struct hf_host host = HF_HOST_CLOSED;
	struct message message = { "" }, next;
	ssize_t n;

	if (options->n_addresses && hf_netlink_open(&host.route, 0) < 0)
		host.route.fd = -1;
	options->confine();
	do {
		n = recv(socket, &next, sizeof(next), 0);
		if (n == sizeof(next))
			message = next;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (*message.owner)
		give_up(options, &host, message.owner);
	_exit(EXIT_SUCCESS);
}

/* In the server */

int hf_witness_new(struct hf_witness **witnessp, const struct hf_witness_options *options)
{
	struct hf_witness_options copy = *options;
	struct hf_witness *witness = calloc(1, sizeof(*witness));
	int r;

	if (!witness)
		return hf_trace(-ENOMEM);
	r = hf_helper_fork("hf-witness", true, watch, &copy, &witness->socket);
	if (r < 0) {
		free(witness);
		return r;
	}
	*witnessp = witness;
	return 0;
}

void hf_witness_tell(struct hf_witness *witness, const char *owner)
{
	struct message message = { "" };

	snprintf(message.owner, sizeof(message.owner), "%s", owner);
	if (send(witness->socket, &message, sizeof(message), MSG_NOSIGNAL) < 0)
		hf_log_warn("the process that watches this one is gone", "error=%s", strerrorname_np(errno));
}

struct hf_witness *hf_witness_free(struct hf_witness *witness)
{
	if (!witness)
		return NULL;
	hf_witness_tell(witness, "");
	close(witness->socket);
	free(witness);
	return NULL;
}
