/*
 * A node's hands on its host, for test_cluster_host.py: what src/cluster does, in the daemon's sandbox, one
 * command from each line of the input, one line of output for each.
 *
 *	cluster_host [--fence COMMAND] [--user NAME STATE_DIR] ADDRESS/PREFIX%INTERFACE...
 *
 *	hold MS | give_up | announce | nudge SERVICE CLIENT | link | wait_link MS | fence NODE MS
 *
 * Answers: "ok", "ok TEXT", "down INTERFACE", "missing INTERFACE", "failed TEXT". After "ready" it is in the
 * sandbox.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/address.h"
#include "cluster/announce.h"
#include "cluster/fence.h"
#include "cluster/host.h"
#include "cluster/link.h"
#include "cluster/nudge.h"
#include "daemon/process.h"
#include "daemon/sandbox.h"
#include "daemon/state_dir.h"

#define MAX_ADDRESSES 8

struct node {
	struct hf_host host;
	struct hf_service_address addresses[MAX_ADDRESSES];
	size_t n;
	struct hf_link_watch *links;
	struct hf_fence *fence;
	struct hf_state_dir *state_dir;
	char error[512];
};

static void answer(int r, const char *text)
{
	printf("%s%s%s\n", r == 0 ? "ok" : "failed", *text ? " " : "", text);
	fflush(stdout);
}

static void answer_code(int r)
{
	answer(r, r < 0 ? strerrorname_np(-r) : "");
}

static void tell_link(struct node *node)
{
	struct hf_link_down down;

	if (hf_link_is_up(node->links, &down))
		answer(0, "");
	else
		printf("%s %s\n", down.exists ? "down" : "missing", down.interface);
	fflush(stdout);
}

static void wait_for_link(struct node *node, int ms)
{
	struct pollfd polled = { .fd = hf_link_watch_fd(node->links), .events = POLLIN };

	poll(&polled, 1, ms);
	tell_link(node);
}

static void nudge(struct node *node, const char *service, const char *client)
{
	struct hf_nudge one;

	if (!hf_addr_parse_with_port(&one.service, service) || !hf_addr_parse_with_port(&one.client, client))
		answer(-1, "no addresses with ports");
	else
		answer(hf_nudge_some(&node->host, &one, 1) == 1 ? 0 : -1, "");
}

static void fence(struct node *node, const char *name, uint32_t timeout_ms)
{
	char message[HF_FENCE_MESSAGE];
	int r = hf_fence_run(node->fence, name, timeout_ms, message, sizeof(message));

	answer(r, message);
}

static void obey(struct node *node, char *line)
{
	char *rest, *words[3];

	words[0] = strtok_r(line, " \n", &rest);
	for (int i = 1; i < 3; i++) {
		words[i] = words[i - 1] ? strtok_r(NULL, " \n", &rest) : NULL;
		words[i] = words[i] ? words[i] : (char[]){ "" };
	}
	node->error[0] = '\0';
	if (strcmp(words[0], "hold") == 0)
		answer(hf_addresses_hold(&node->host, node->addresses, node->n, (uint32_t)atoi(words[1]),
					 node->error, sizeof(node->error)),
		       node->error);
	else if (strcmp(words[0], "give_up") == 0)
		answer(hf_addresses_give_up(&node->host, node->addresses, node->n, node->error,
					    sizeof(node->error)),
		       node->error);
	else if (strcmp(words[0], "announce") == 0)
		answer_code(hf_announce(&node->host, node->addresses, node->n));
	else if (strcmp(words[0], "nudge") == 0)
		nudge(node, words[1], words[2]);
	else if (strcmp(words[0], "link") == 0)
		tell_link(node);
	else if (strcmp(words[0], "wait_link") == 0)
		wait_for_link(node, atoi(words[1]));
	else if (strcmp(words[0], "fence") == 0)
		fence(node, words[1], (uint32_t)atoi(words[2]));
	else
		answer(-1, "no such command");
}

/* In the order of the daemon: what needs rights comes before they are gone. */
static int start(struct node *node, const char *command, const char *user, const char *state_dir)
{
	int r = 0;

	if (*command)
		r = hf_fence_check(command, node->error, sizeof(node->error));
	if (r == 0 && *command)
		r = hf_fence_new(&node->fence, command);
	if (r == 0)
		r = hf_host_open(&node->host, node->addresses, node->n, node->error, sizeof(node->error));
	if (r == 0)
		r = hf_link_watch_open(&node->links, node->addresses, node->n);
	if (r == 0 && *state_dir)
		r = hf_state_dir_open(&node->state_dir, state_dir, node->error, sizeof(node->error));
	if (r < 0)
		return r;
	hf_sandbox_limit_caps(node->n > 0);
	if (*user)
		r = hf_process_become(user, node->n > 0, node->state_dir, node->error, sizeof(node->error));
	if (r == 0)
		hf_sandbox_enter();
	return r;
}

static void stop(struct node *node)
{
	hf_fence_free(node->fence);
	hf_link_watch_close(node->links);
	hf_host_close(&node->host);
	hf_state_dir_close(node->state_dir);
}

int main(int argc, char **argv)
{
	struct node node = { .host = HF_HOST_CLOSED };
	const char *command = "", *user = "", *state_dir = "";
	char line[512];
	int r;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--fence") == 0 && i + 1 < argc) {
			command = argv[++i];
		} else if (strcmp(argv[i], "--user") == 0 && i + 2 < argc) {
			user = argv[++i];
			state_dir = argv[++i];
		} else if (node.n == MAX_ADDRESSES ||
			   hf_service_address_parse(&node.addresses[node.n++], argv[i]) != 0) {
			fprintf(stderr, "%s: what is this?\n", argv[i]);
			return 2;
		}
	}
	r = start(&node, command, user, state_dir);
	answer(r, r < 0 ? (*node.error ? node.error : strerror(-r)) : "ready");
	while (r == 0 && fgets(line, sizeof(line), stdin))
		obey(&node, line);
	stop(&node);
	return r < 0;
}
