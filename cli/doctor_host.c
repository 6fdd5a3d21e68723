/* A client as seen from here: what our notifier and our GRANTED would ask it, over UDP and TCP. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "loop/loop.h"
#include "rpc/client.h"
#include "rpc/lookup.h"

#define TIMEOUT_NS   (5 * HF_NS_PER_S)
#define PORTMAP_PORT 111

struct question {
	const char *service;
	uint32_t program, version;
	uint16_t port; /* 0: ask its rpcbind */
	enum hf_rpc_path path;
	const char *breaks, *mend;
	struct examination *examination;
	char what[256];
	enum cli_finding finding;
};

struct examination {
	struct hf_loop *loop;
	size_t n_left;
};

static const struct question questions_asked[] = {
	{ "rpcbind", 100000, 2, PORTMAP_PORT, HF_RPC_UDP_ONLY,
	  "we cannot find its lock manager and its status monitor over UDP",
	  "start rpcbind there; open UDP 111" },
	{ "rpcbind", 100000, 2, PORTMAP_PORT, HF_RPC_TCP_ONLY,
	  "we cannot find its lock manager and its status monitor over TCP",
	  "start rpcbind there; open TCP 111" },
	{ "statd", 100024, 1, 0, HF_RPC_UDP_ONLY,
	  "it is not told of our restart, and loses its locks when grace ends",
	  "start rpc.statd there; let our UDP to its port in (statd -p fixes the port)" },
	{ "statd", 100024, 1, 0, HF_RPC_TCP_ONLY, "nothing by itself: we tell it over UDP first",
	  "start rpc.statd there" },
	{ "lockd", 100021, 4, 0, HF_RPC_UDP_ONLY,
	  "who waits for a lock there over UDP is not told when it has it, and asks again every 30 seconds",
	  "mount an NFS file system there, which starts lockd; fix its port (nlm_udpport) and let us in" },
	{ "lockd", 100021, 4, 0, HF_RPC_TCP_ONLY,
	  "who waits for a lock there is not told when it has it, and asks again every 30 seconds",
	  "mount an NFS file system there, which starts lockd; fix its port (nlm_tcpport) and let us in" },
};

static void on_done(void *user, const struct hf_rpc_result *result)
{
	struct question *question = user;
	const char *transport = question->path == HF_RPC_UDP_ONLY ? "UDP" : "TCP";
	bool is_fine = result->outcome == HF_RPC_OUTCOME_OK;
	char address[HF_ADDR_TEXT];

	hf_addr_format_with_port(&result->remote, address, sizeof(address));
	if (is_fine)
		snprintf(question->what, sizeof(question->what), "%s answers over %s at %s",
			 question->service, transport, address);
	else
		snprintf(question->what, sizeof(question->what), "%s does not answer over %s: %s: %s",
			 question->service, transport, hf_rpc_stage_text(result->stage),
			 hf_rpc_outcome_text(result->outcome));
	question->finding = is_fine ? CLI_FINE : CLI_BAD;
	if (--question->examination->n_left == 0)
		hf_loop_stop(question->examination->loop);
}

static bool resolve(const char *host, struct hf_addr *addr)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	bool is_found =
		getaddrinfo(host, NULL, &hints, &found) == 0 && hf_addr_from_sockaddr(addr, found->ai_addr);

	if (found)
		freeaddrinfo(found);
	addr->port = 0;
	return is_found;
}

static void ask(struct hf_rpc_client *client, struct question *question, const struct hf_addr *addr)
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
	if (hf_rpc_client_call(client, NULL, &request, on_done, question) == 0) {
		question->examination->n_left++;
		return;
	}
	question->finding = CLI_BAD;
	snprintf(question->what, sizeof(question->what), "%s cannot be asked at this address",
		 question->service);
}

void cli_doctor_host(struct cli_findings *findings, const char *host)
{
	struct question questions[HF_ARRAY_SIZE(questions_asked)];
	struct examination examination = { 0 };
	struct hf_rpc_client *client = NULL;
	struct hf_addr addr;
	char what[512];

	if (!resolve(host, &addr)) {
		snprintf(what, sizeof(what), "%s cannot be resolved", host);
		cli_find(findings, CLI_BAD, what,
			 "nothing by itself: we call clients at the address they call from",
			 "give its address");
		return;
	}
	if (hf_loop_new(&examination.loop) < 0 || hf_rpc_client_new(&client, examination.loop, NULL) < 0) {
		hf_loop_free(examination.loop);
		cli_find(findings, CLI_BAD, "there is no memory for this", NULL, NULL);
		return;
	}
	memcpy(questions, questions_asked, sizeof(questions));
	for (size_t i = 0; i < HF_ARRAY_SIZE(questions); i++) {
		questions[i].examination = &examination;
		ask(client, &questions[i], &addr);
	}
	if (examination.n_left)
		hf_loop_run(examination.loop);
	for (size_t i = 0; i < HF_ARRAY_SIZE(questions); i++) {
		bool is_bad = questions[i].finding == CLI_BAD;

		cli_find(findings, questions[i].finding, questions[i].what,
			 is_bad ? questions[i].breaks : NULL, is_bad ? questions[i].mend : NULL);
	}
	hf_rpc_client_free(client);
	hf_loop_free(examination.loop);
}
