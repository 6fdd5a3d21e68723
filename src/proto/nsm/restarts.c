/*
 * A client crashed, or is not registered any more: what else must be told or forgotten?
 *
 *	unregistered   what its host said of itself (baseline.c), its call-backs and its watch; its
 *	               number is noted (copies.c)
 *	crashed        what its host said, and its connection. If the client is a watched peer, its
 *	               lock manager gets the call-back (callback.c). If it is any other client, those
 *	               that watch its address are told: a restart may be known without an SM_NOTIFY.
 */
#include <stdlib.h>

#include "base/log.h"
#include "proto/nsm/internal.h"

/* The watchers are told at the end of the turn, when the crash is complete. They hear of every restarted
 * host, however many crashes one turn brings. */
static void tell_watchers_later(struct hf_nsm *nsm, const struct hf_addr *host, int32_t state)
{
	if (nsm->n_restarted == nsm->restarted_room) {
		size_t room = nsm->restarted_room ? 2 * nsm->restarted_room : 64;
		struct hf_nsm_restarted_host *more = realloc(nsm->restarted, room * sizeof(*more));

		if (!more) {
			hf_log_error(
				"no memory to tell a lock manager of this host that a peer was restarted",
				"%s", "");
			return;
		}
		nsm->restarted = more;
		nsm->restarted_room = room;
	}
	nsm->restarted[nsm->n_restarted++] = (struct hf_nsm_restarted_host){ *host, state };
	hf_loop_defer(nsm->options.loop, &nsm->restarts_task);
}

/* Those that watch the host by its address. */
static void tell_watchers(struct hf_nsm *nsm, const struct hf_addr *address, int32_t state)
{
	struct hf_client *client = NULL;
	size_t n = 0;

	while ((client = hf_clients_next_at(nsm->clients, address, client)) && n++ < HF_NSM_MAX_LOOKED_AT)
		if (hf_nsm_is_watching(nsm, client))
			hf_recovery_client_rebooted(nsm->options.recovery, client, state);
	hf_client_unref(client);
}

static void tell_watchers_now(struct hf_task *task)
{
	struct hf_nsm *nsm = hf_container_of(task, struct hf_nsm, restarts_task);
	struct hf_nsm_restarted_host *restarted = nsm->restarted;
	size_t n = nsm->n_restarted;

	nsm->restarted = NULL;
	nsm->n_restarted = nsm->restarted_room = 0;
	for (size_t i = 0; i < n; i++)
		tell_watchers(nsm, &restarted[i].host, restarted[i].state);
	free(restarted);
}

static void on_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event)
{
	struct hf_nsm *nsm = hf_container_of(observer, struct hf_nsm, observer);
	struct hf_client *client = event->client;

	switch (event->kind) {
	case HF_EVENT_UNREGISTERED:
		hf_nsm_baseline_forget(client);
		hf_nsm_note_departed(nsm, client);
		if (!client->mon_name)
			break;
		hf_nsm_callbacks_forget(nsm, client);
		hf_nsm_unwatch(nsm, client);
		break;
	case HF_EVENT_CRASH:
		hf_nsm_baseline_forget(client);
		client->link = 0;
		if (hf_nsm_is_local_watch(nsm, client))
			hf_nsm_call_back(nsm, client, event->state);
		else if (event->state)
			tell_watchers_later(nsm, &client->address, event->state);
		break;
	default:
		break;
	}
}

void hf_nsm_restarts_init(struct hf_nsm *nsm)
{
	nsm->observer.fn = on_event;
	hf_recovery_observe(nsm->options.recovery, &nsm->observer);
	hf_task_init(&nsm->restarts_task, tell_watchers_now);
}

void hf_nsm_restarts_deinit(struct hf_nsm *nsm)
{
	if (!nsm->observer.fn)
		return;
	hf_link_remove(&nsm->observer.link);
	hf_task_cancel(&nsm->restarts_task);
	free(nsm->restarted);
}
