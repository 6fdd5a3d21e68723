#include "cli/doctor_ask.h"

#include "base/error.h"
#include "loop/loop.h"

#define TIMEOUT_NS (5 * HF_NS_PER_S)

struct cli_examination {
	struct hf_loop *loop;
	size_t n_left;
};

static void on_done(void *user, const struct hf_rpc_result *result)
{
	struct cli_question *question = user;

	question->outcome = result->outcome;
	question->stage = result->stage;
	question->remote = result->remote;
	if (--question->examination->n_left == 0)
		hf_loop_stop(question->examination->loop);
}

static void ask(struct hf_rpc_client *client, struct cli_question *question, const struct hf_addr *addr)
{
	struct hf_rpc_request request = {
		.remote = *addr,
		.program = question->program,
		.version = question->version,
		.path = question->path,
		.timeout_ns = TIMEOUT_NS,
		.reserved_port = true,
		.fresh_connection = true,
	};

	request.remote.port = question->port;
	question->outcome = HF_RPC_OUTCOME_UNREACHABLE; /* the call could not even be started */
	if (hf_rpc_client_call(client, NULL, &request, on_done, question) == 0)
		question->examination->n_left++;
}

int cli_doctor_ask(struct cli_question *questions, size_t n, const struct hf_addr *addr)
{
	struct cli_examination examination = { 0 };
	struct hf_rpc_client *client = NULL;
	int r = hf_loop_new(&examination.loop);

	if (r == 0)
		r = hf_rpc_client_new(&client, examination.loop, NULL);
	for (size_t i = 0; r == 0 && i < n; i++) {
		questions[i].examination = &examination;
		ask(client, &questions[i], addr);
	}
	if (examination.n_left)
		hf_loop_run(examination.loop);
	hf_rpc_client_free(client);
	hf_loop_free(examination.loop);
	return hf_trace(r);
}
