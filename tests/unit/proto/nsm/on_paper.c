#include "on_paper.h"

struct world w;
struct hf_nsm *nsm;
size_t n_asked;
static hf_rpc_done_fn done_asking;
static void *asker;

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	if (request->program == HF_NSM_PROGRAM) {
		n_asked++;
		done_asking = done;
		asker = user;
	}
	*pendingp = (struct hf_rpc_pending *)user;
	return 0;
}

struct hf_rpc_pending *__wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending);
struct hf_rpc_pending *__wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending)
{
	return NULL;
}

uint16_t __wrap_hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client);
uint16_t __wrap_hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client)
{
	return 111;
}

void on_paper_end(enum hf_rpc_outcome outcome)
{
	done_asking(asker, &(struct hf_rpc_result){ .outcome = outcome });
}

int on_paper_setup(void **state)
{
	struct hf_nsm_options options = { .server_name = "server" };

	n_asked = 0;
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	options.loop = w.loop;
	options.recovery = w.recovery;
	return hf_nsm_new(&nsm, &options);
}
