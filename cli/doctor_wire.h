/* What a server shows of TLS to a client that checks nothing. */
#pragma once

#include <stdint.h>

#include "tls/tls.h"

struct cli;

struct cli_seen {
	char problem[HF_TLS_PROBLEM_SIZE]; /* why there is no TLS; empty: there is */
	char version[16];                  /* "TLSv1.3" */
	char pin[HF_TLS_PIN_TEXT];         /* of the certificate */
};

void cli_see_rpc(struct cli_seen *seen, uint16_t port); /* on this host: STARTTLS, then the handshake */
void cli_see_api(struct cli_seen *seen, const struct cli *cli);
