/* One HTTP/1.1 request, over TCP, TLS or a Unix socket; every answer is bounded in time and size. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "tls/tls.h"

#define CONNECT_SECONDS 5
#define TIMEOUT_SECONDS 30
#define MAX_ANSWER      (64u << 20)
#define MAX_LINE        65536
#define MAX_HEADERS     100

/* Connecting */

static void set_patience(int fd, int option, int seconds)
{
	struct timeval patience = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, option, &patience, sizeof(patience));
}

static int connect_unix(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* "host:port", "[v6]:port" */
static bool split(const char *endpoint, char *host, size_t size, const char **portp)
{
	const char *colon = strrchr(endpoint, ':');
	size_t len;

	if (!colon)
		return false;
	*portp = colon + 1;
	if (*endpoint == '[') {
		endpoint++;
		colon--;
		if (*colon != ']')
			return false;
	}
	len = (size_t)(colon - endpoint);
	if (len >= size)
		return false;
	memcpy(host, endpoint, len);
	host[len] = '\0';
	return true;
}

static int connect_to(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	set_patience(fd, SO_SNDTIMEO, CONNECT_SECONDS);
	if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
		return fd;
	r = errno == EINPROGRESS ? -ETIMEDOUT : -errno;
	close(fd);
	return r;
}

static int connect_tcp(const char *endpoint)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	char host[256];
	const char *port;
	int fd = -EHOSTUNREACH;

	if (!split(endpoint, host, sizeof(host), &port))
		return -EINVAL;
	if (getaddrinfo(host, port, &hints, &found) != 0)
		return -EHOSTUNREACH;
	for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
		fd = connect_to(at);
	freeaddrinfo(found);
	return fd;
}

/* TLS, as a stream */

struct secured {
	int fd;
	struct hf_tls_client *tls;
};

static ssize_t answer(ssize_t n, ssize_t failed)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return failed;
}

static ssize_t read_secured(void *user, char *data, size_t len)
{
	const struct secured *secured = user;

	return answer(hf_tls_client_read(secured->tls, data, len), -1);
}

static ssize_t write_secured(void *user, const char *data, size_t len)
{
	const struct secured *secured = user;

	return answer(hf_tls_client_write(secured->tls, data, len), 0);
}

static int close_secured(void *user)
{
	struct secured *secured = user;

	hf_tls_client_free(secured->tls);
	close(secured->fd);
	free(secured);
	return 0;
}

static FILE *open_stream(int fd, struct hf_tls_client *tls)
{
	static const cookie_io_functions_t functions = { read_secured, write_secured, NULL, close_secured };
	struct secured *secured = malloc(sizeof(*secured));
	FILE *stream;

	if (!secured)
		return NULL;
	*secured = (struct secured){ fd, tls };
	stream = fopencookie(secured, "r+", functions);
	if (!stream)
		free(secured);
	return stream;
}

static FILE *secure(struct cli *cli, int fd)
{
	const char *const pins[] = { cli->pins[0], cli->pins[1] };
	struct hf_tls_client_options options = { .ca = cli->ca,
						 .pins = pins,
						 .n_pins = cli->is_insecure ? 0 : cli->n_pins,
						 .protocol = "http/1.1",
						 .is_unchecked = cli->is_insecure };
	struct hf_tls_client *tls = NULL;
	char host[256];
	const char *port;
	FILE *stream;

	if (split(cli->endpoint, host, sizeof(host), &port))
		options.host = host;
	if (hf_tls_client_new(&tls, fd, &options, cli->problem) != 0) {
		errno = EKEYREJECTED;
		return NULL;
	}
	stream = open_stream(fd, tls);
	if (!stream)
		hf_tls_client_free(tls);
	return stream;
}

int cli_connect(const struct cli *cli)
{
	int fd = strncmp(cli->endpoint, "unix:", 5) == 0 ? connect_unix(cli->endpoint + 5)
							 : connect_tcp(cli->endpoint);

	if (fd < 0)
		return fd;
	set_patience(fd, SO_RCVTIMEO, cli->is_patient ? 0 : TIMEOUT_SECONDS);
	set_patience(fd, SO_SNDTIMEO, TIMEOUT_SECONDS);
	return fd;
}

static FILE *open_connection(struct cli *cli)
{
	int fd = cli_connect(cli);
	FILE *stream;

	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	stream = cli->is_https ? secure(cli, fd) : fdopen(fd, "r+");
	if (!stream) {
		int error = errno;

		close(fd);
		errno = error;
	}
	return stream;
}

static void closep(FILE **stream)
{
	if (*stream)
		fclose(*stream);
}

/* Asking */

static int send_request(const struct cli *cli, FILE *stream, const char *method, const char *target)
{
	bool is_unix = strncmp(cli->endpoint, "unix:", 5) == 0;

	fprintf(stream, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, target,
		is_unix ? "localhost" : cli->endpoint);
	if (cli_may_send_token(cli))
		fprintf(stream, "Authorization: Bearer %s\r\n", cli->token);
	if (strcmp(method, "GET") != 0)
		fputs("Content-Length: 0\r\n", stream);
	fputs("\r\n", stream);
	return fflush(stream) == 0 ? 0 : -errno;
}

/* Reads the head of the answer. */
static int read_head(FILE *stream, int *statusp, bool *is_chunkedp)
{
	char line[MAX_LINE];

	*is_chunkedp = false;
	errno = 0;
	if (!fgets(line, sizeof(line), stream))
		return errno ? -errno : -ECONNRESET;
	if (sscanf(line, "HTTP/1.%*d %3d", statusp) != 1)
		return -EPROTO;
	for (int i = 0; i < MAX_HEADERS && fgets(line, sizeof(line), stream); i++) {
		if (line[0] == '\r' || line[0] == '\n')
			return 0;
		*is_chunkedp |= strncasecmp(line, "Transfer-Encoding: chunked", 26) == 0;
	}
	return -EPROTO;
}

static int read_all(FILE *stream, struct cli_response *response)
{
	size_t size = 65536, n;

	response->body = malloc(size + 1);
	while (response->body) {
		n = fread(response->body + response->len, 1, size - response->len, stream);
		response->len += n;
		if (n == 0)
			break;
		if (response->len == size) {
			char *more = size < MAX_ANSWER ? realloc(response->body, 2 * size + 1) : NULL;

			if (!more)
				return -EFBIG;
			response->body = more;
			size *= 2;
		}
	}
	if (!response->body)
		return -ENOMEM;
	response->body[response->len] = '\0';
	return ferror(stream) ? -EIO : 0;
}

int cli_request(struct cli *cli, const char *method, const char *target, struct cli_response *response)
{
	hf_cleanup(closep) FILE *stream = open_connection(cli);
	bool is_chunked;
	int r;

	*response = (struct cli_response){ 0 };
	if (!stream)
		return errno ? -errno : -EIO;
	r = send_request(cli, stream, method, target);
	if (r == 0)
		r = read_head(stream, &response->status, &is_chunked);
	if (r == 0)
		r = is_chunked ? -EPROTO : read_all(stream, response);
	return r;
}

/* A stream comes in chunks, and a line may span two of them. */

struct line {
	char text[MAX_LINE];
	size_t len;
};

static bool add_bytes(struct line *line, const char *data, size_t n, bool (*fn)(void *user, const char *line),
		      void *user)
{
	for (size_t i = 0; i < n; i++) {
		if (data[i] != '\n') {
			if (line->len < sizeof(line->text) - 1)
				line->text[line->len++] = data[i];
			continue;
		}
		line->text[line->len] = '\0';
		line->len = 0;
		if (!fn(user, line->text))
			return false;
	}
	return true;
}

static int read_chunks(FILE *stream, bool (*fn)(void *user, const char *line), void *user)
{
	struct line line = { .len = 0 };
	char size[64], data[4096];

	while (fgets(size, sizeof(size), stream)) {
		size_t left = strtoul(size, NULL, 16);

		if (left == 0)
			return 0;
		while (left) {
			size_t n = fread(data, 1, left < sizeof(data) ? left : sizeof(data), stream);

			if (n == 0)
				return -ECONNRESET;
			left -= n;
			if (!add_bytes(&line, data, n, fn, user))
				return 0;
		}
		if (!fgets(size, sizeof(size), stream)) /* skips the end of the line */
			return -ECONNRESET;
	}
	return -ECONNRESET;
}

int cli_stream(struct cli *cli, const char *target, bool (*fn)(void *user, const char *line), void *user,
	       int *statusp)
{
	hf_cleanup(closep) FILE *stream = open_connection(cli);
	bool is_chunked;
	int r;

	*statusp = 0;
	if (!stream)
		return errno ? -errno : -EIO;
	r = send_request(cli, stream, "GET", target);
	if (r == 0)
		r = read_head(stream, statusp, &is_chunked);
	if (r < 0 || *statusp != 200 || !is_chunked)
		return r;
	return read_chunks(stream, fn, user);
}
