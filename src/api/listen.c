/* The TCP port or Unix socket for HTTP. The server creates it, not the library, so that a start fails if it
 * is not available. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "api/internal.h"
#include "base/error.h"
#include "base/log.h"

#define BACKLOG 128

static int listen_tcp(struct hf_api *api, const char **whatp)
{
	struct sockaddr_storage ss;
	socklen_t len = hf_addr_to_sockaddr(&api->options.listen, &ss);
	struct hf_addr got;
	int on = 1;

	api->fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (api->fd < 0)
		return -errno;
	setsockopt(api->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ss.ss_family == AF_INET6)
		setsockopt(api->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(api->fd, (struct sockaddr *)&ss, len) < 0 || listen(api->fd, BACKLOG) < 0) {
		*whatp = errno == EADDRINUSE ? "cannot listen for the API: another program has the port; "
					       "stop it, or choose another api.listen"
					     : "cannot listen for the API: choose another api.listen";
		return -errno;
	}
	len = sizeof(ss);
	if (getsockname(api->fd, (struct sockaddr *)&ss, &len) < 0 ||
	    !hf_addr_from_sockaddr(&got, (struct sockaddr *)&ss))
		return -EIO;
	api->port = got.port;
	return 0;
}

/* A dead server leaves its socket behind, and the new one replaces it. A socket on which a server answers
 * stays. */
static bool is_left_over(const struct sockaddr_un *sun)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_dead = fd >= 0 && connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) < 0 &&
		       errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return is_dead;
}

static int listen_unix(struct hf_api *api, const char **whatp)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	mode_t mask;
	int r;

	if (strlen(api->options.path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, api->options.path, strlen(api->options.path) + 1);
	api->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (api->fd < 0)
		return -errno;
	if (is_left_over(&sun))
		unlink(sun.sun_path);
	*whatp = "cannot listen for the API on its socket: choose another api.listen";
	mask = umask(0117); /* for the server's user and group */
	r = bind(api->fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : 0;
	umask(mask);
	if (r == 0 && listen(api->fd, BACKLOG) < 0)
		r = -errno;
	return r;
}

int hf_api_listen(struct hf_api *api)
{
	const char *what = "cannot create a socket for the API";
	int r = api->options.path ? listen_unix(api, &what) : listen_tcp(api, &what);
	char text[HF_ADDR_TEXT], quoted[256];

	if (r < 0 && api->options.path)
		hf_log_error(what, "path=%s error=%s",
			     hf_log_quote(quoted, sizeof(quoted), api->options.path,
					  strlen(api->options.path)),
			     strerror(-r));
	else if (r < 0)
		hf_log_error(what, "address=%s error=%s",
			     hf_addr_format_with_port(&api->options.listen, text, sizeof(text)),
			     strerror(-r));
	return r;
}
