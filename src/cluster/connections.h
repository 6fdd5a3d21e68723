/*
 * Which connections do clients have with this node? As bytes, which the database holds for the
 * next node: it makes these clients speak (nudge.h).
 *
 * The kernel knows them, whatever thread serves them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_nudge;

/* Those that are established with @port, from the kernel's tables; to be freed. NULL: they cannot be read. */
uint8_t *hf_connections_read(uint16_t port, size_t *lenp);
/* To be freed; NULL: no memory. Bytes that are none give no connections. */
struct hf_nudge *hf_connections_decode(const uint8_t *bytes, size_t len, size_t *np);

/* A line of /proc/net/tcp or tcp6. False: it is none, or of a connection that is not established with @port.
 */
bool hf_connections_parse(struct hf_nudge *connection, const char *line, uint16_t port);
