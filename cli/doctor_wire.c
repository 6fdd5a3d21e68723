#include "cli/doctor_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "rpc/message.h"

#define TIMEOUT_SECONDS 5
#define NFS_PROGRAM     100003
#define XID             0x686f6c64
#define LAST_FRAGMENT   0x80000000u

static void shake_hands(struct cli_seen *seen, int fd, const char *protocol)
{
	const struct hf_tls_client_options options = { .protocol = protocol, .is_unchecked = true };
	hf_cleanup(hf_tls_client_freep) struct hf_tls_client *tls = NULL;

	if (hf_tls_client_new(&tls, fd, &options, seen->problem) != 0)
		return;
	*seen->problem = '\0';
	snprintf(seen->version, sizeof(seen->version), "%s", hf_tls_client_version(tls));
	snprintf(seen->pin, sizeof(seen->pin), "%s", hf_tls_client_pin(tls));
}

/* RPC: the question AUTH_TLS of RFC 9289 */

static int connect_here(uint16_t port)
{
	const struct timeval patience = { .tv_sec = TIMEOUT_SECONDS };
	struct hf_addr addr = cli_address_of_server(port);
	struct sockaddr_storage ss;
	socklen_t len;
	int fd;

	addr.port = port;
	len = hf_addr_to_sockaddr(&addr, &ss);
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&ss, len) == 0)
		return fd;
	close(fd);
	return -ECONNREFUSED;
}

static size_t put_question(uint8_t *data, size_t size)
{
	static const uint32_t words[] = { XID,          0 /* a call */,  2, NFS_PROGRAM,      3,
					  0 /* NULL */, HF_RPC_AUTH_TLS, 0, HF_RPC_AUTH_NONE, 0 };
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, size);
	hf_xdr_put_u32(&out, LAST_FRAGMENT | (uint32_t)sizeof(words));
	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++)
		hf_xdr_put_u32(&out, words[i]);
	return sizeof(words) + 4;
}

/* The answer is short and known byte by byte. */
static bool is_starttls(int fd)
{
	uint8_t wanted[4 + HF_RPC_STARTTLS_LEN], got[sizeof(wanted)];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, wanted, sizeof(wanted));
	hf_xdr_put_u32(&out, LAST_FRAGMENT | HF_RPC_STARTTLS_LEN);
	hf_rpc_put_starttls(&out, XID);
	return recv(fd, got, sizeof(got), MSG_WAITALL) == (ssize_t)sizeof(got) &&
	       memcmp(got, wanted, sizeof(got)) == 0;
}

void cli_see_rpc(struct cli_seen *seen, uint16_t port)
{
	hf_cleanup(hf_closep) int fd = connect_here(port);
	uint8_t question[64];
	size_t len = put_question(question, sizeof(question));

	*seen = (struct cli_seen){ 0 };
	if (fd < 0 || send(fd, question, len, MSG_NOSIGNAL) != (ssize_t)len)
		snprintf(seen->problem, sizeof(seen->problem), "it cannot be reached");
	else if (!is_starttls(fd))
		snprintf(seen->problem, sizeof(seen->problem), "it does not answer STARTTLS");
	else
		shake_hands(seen, fd, "sunrpc");
}

/* The API */

void cli_see_api(struct cli_seen *seen, const struct cli *cli)
{
	hf_cleanup(hf_closep) int fd = cli_connect(cli);

	*seen = (struct cli_seen){ 0 };
	if (fd < 0)
		snprintf(seen->problem, sizeof(seen->problem), "%s", strerror(-fd));
	else
		shake_hands(seen, fd, "http/1.1");
}
