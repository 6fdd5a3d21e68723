#include "cluster/connections.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/le.h"
#include "cluster/nudge.h"

#define ENCODED     37    /* family, two addresses of 16 bytes, two ports */
#define MAX         16384 /* as many as the server serves */
#define LINE        512
#define ESTABLISHED 1

/* "0100007F:0801", or the same with 32 digits: words in the byte order of this machine. */
static bool parse_end(struct hf_addr *addr, const char *text)
{
	size_t n_digits = strcspn(text, ":");
	unsigned int port;

	memset(addr, 0, sizeof(*addr));
	if (n_digits != 8 && n_digits != 32)
		return false;
	for (size_t i = 0; i < n_digits / 8; i++) {
		unsigned int word;

		if (sscanf(text + 8 * i, "%8x", &word) != 1)
			return false;
		memcpy(addr->ip + 4 * i, &word, 4);
	}
	addr->family = n_digits == 8 ? AF_INET : AF_INET6;
	if (sscanf(text + n_digits, ":%4x", &port) != 1)
		return false;
	addr->port = (uint16_t)port;
	return true;
}

/* An IPv4 client of an IPv6 socket */
static void unmap(struct hf_addr *addr)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (addr->family != AF_INET6 || memcmp(addr->ip, mapped, sizeof(mapped)) != 0)
		return;
	memmove(addr->ip, addr->ip + 12, 4);
	memset(addr->ip + 4, 0, 12);
	addr->family = AF_INET;
}

bool hf_connections_parse(struct hf_nudge *connection, const char *line, uint16_t port)
{
	char local[64], remote[64];
	unsigned int state;

	if (sscanf(line, " %*[0-9]: %63s %63s %2x", local, remote, &state) != 3 || state != ESTABLISHED)
		return false;
	if (!parse_end(&connection->service, local) || !parse_end(&connection->client, remote))
		return false;
	unmap(&connection->service);
	unmap(&connection->client);
	return connection->service.port == port;
}

static void encode(uint8_t *p, const struct hf_nudge *connection)
{
	p[0] = connection->service.family == AF_INET6 ? 6 : 4;
	memcpy(p + 1, connection->service.ip, 16);
	memcpy(p + 17, connection->client.ip, 16);
	hf_le_put16(p + 33, connection->service.port);
	hf_le_put16(p + 35, connection->client.port);
}

static size_t read_table(const char *path, uint16_t port, uint8_t *bytes, size_t n)
{
	FILE *file = fopen(path, "re");
	struct hf_nudge connection;
	char line[LINE];

	if (!file)
		return n;
	while (n < MAX && fgets(line, sizeof(line), file))
		if (hf_connections_parse(&connection, line, port))
			encode(bytes + ENCODED * n++, &connection);
	fclose(file);
	return n;
}

uint8_t *hf_connections_read(uint16_t port, size_t *lenp)
{
	uint8_t *bytes = malloc((size_t)ENCODED * MAX), *cut;
	size_t n;

	if (!bytes)
		return NULL;
	n = read_table("/proc/self/net/tcp", port, bytes, 0);
	n = read_table("/proc/self/net/tcp6", port, bytes, n);
	*lenp = n * ENCODED;
	cut = realloc(bytes, *lenp + 1);
	return cut ? cut : bytes;
}

struct hf_nudge *hf_connections_decode(const uint8_t *bytes, size_t len, size_t *np)
{
	size_t n = len / ENCODED;
	struct hf_nudge *list = calloc(n + 1, sizeof(*list));

	*np = list ? n : 0;
	for (size_t i = 0; i < *np; i++) {
		const uint8_t *p = bytes + i * ENCODED;

		list[i].service.family = list[i].client.family = p[0] == 6 ? AF_INET6 : AF_INET;
		memcpy(list[i].service.ip, p + 1, 16);
		memcpy(list[i].client.ip, p + 17, 16);
		list[i].service.port = (uint16_t)(p[33] | p[34] << 8);
		list[i].client.port = (uint16_t)(p[35] | p[36] << 8);
	}
	return list;
}
