/* A client as seen from here: the calls that the server's SM_NOTIFY and GRANTED would make, over UDP and
 * TCP. */
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "cli/cli.h"
#include "cli/doctor_ask.h"

/* Each service over UDP, and then over TCP */
static const struct cli_question questions_asked[] = {
	{ "rpcbind", 100000, 2, CLI_PORTMAP_PORT, HF_RPC_UDP_ONLY,
	  "the server cannot find its lock manager and its status monitor over UDP",
	  "start rpcbind there; open UDP 111" },
	{ "rpcbind", 100000, 2, CLI_PORTMAP_PORT, HF_RPC_TCP_ONLY,
	  "the server cannot find its lock manager and its status monitor over TCP",
	  "start rpcbind there; open TCP 111" },
	{ "statd", 100024, 1, 0, HF_RPC_UDP_ONLY,
	  "it does not learn of a restart of the server, and loses its locks when grace ends",
	  "start rpc.statd there; let the server's UDP to its port in (statd -p fixes the port)" },
	{ "statd", 100024, 1, 0, HF_RPC_TCP_ONLY,
	  "it does not learn of a restart of the server if UDP does not reach it", "start rpc.statd there" },
	{ "lockd", 100021, 4, 0, HF_RPC_UDP_ONLY,
	  "a waiter there does not learn over UDP that it has its lock; it asks again every 30 seconds",
	  "mount an NFS file system there, which starts lockd; fix its port (nlm_udpport) and let the server "
	  "in" },
	{ "lockd", 100021, 4, 0, HF_RPC_TCP_ONLY,
	  "a waiter there does not learn that it has its lock; it asks again every 30 seconds",
	  "mount an NFS file system there, which starts lockd; fix its port (nlm_tcpport) and let the server "
	  "in" },
};

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

/* The server falls back to the other transport if this one is not registered or refused, but not if it times
 * out. */
static bool is_made_up_for(const struct cli_question *question, const struct cli_question *other)
{
	return other->outcome == HF_RPC_OUTCOME_OK && (question->outcome == HF_RPC_OUTCOME_NOT_REGISTERED ||
						       question->outcome == HF_RPC_OUTCOME_REFUSED);
}

static void tell(struct cli_findings *findings, const struct cli_question *question,
		 const struct cli_question *other)
{
	const char *transport = question->path == HF_RPC_UDP_ONLY ? "UDP" : "TCP";
	char what[512], address[HF_ADDR_TEXT];

	if (question->outcome == HF_RPC_OUTCOME_OK) {
		snprintf(what, sizeof(what), "%s answers over %s at %s", question->service, transport,
			 hf_addr_format_with_port(&question->remote, address, sizeof(address)));
		cli_find(findings, CLI_FINE, what, NULL, NULL);
		return;
	}
	snprintf(what, sizeof(what), "%s does not answer over %s: %s: %s", question->service, transport,
		 hf_rpc_stage_text(question->stage), hf_rpc_outcome_text(question->outcome));
	if (is_made_up_for(question, other))
		cli_find(findings, CLI_NOTE, what, "nothing: the server uses the other transport",
			 question->mend);
	else
		cli_find(findings, CLI_BAD, what, question->breaks, question->mend);
}

void cli_doctor_host(struct cli_findings *findings, const char *host)
{
	struct cli_question questions[HF_ARRAY_SIZE(questions_asked)];
	struct hf_addr addr;
	char what[512];

	if (!resolve(host, &addr)) {
		snprintf(what, sizeof(what), "%s cannot be resolved", host);
		cli_find(findings, CLI_BAD, what,
			 "nothing by itself: the server calls clients at the address that they call from",
			 "give its address");
		return;
	}
	memcpy(questions, questions_asked, sizeof(questions));
	if (cli_doctor_ask(questions, HF_ARRAY_SIZE(questions), &addr) < 0) {
		cli_find(findings, CLI_BAD, "this client cannot be checked from here",
			 "the state of this client is unknown",
			 "look at the memory and the limits of this shell");
		return;
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(questions); i++)
		tell(findings, &questions[i], &questions[i ^ 1]);
}
