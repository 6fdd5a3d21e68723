/*
 * The limit for the file benchmarks: a file, a socket, and nothing between but
 * pread and pwrite. One thread a connection.
 *
 *	bench_files_plain FILE
 *
 * A request is an offset (8 bytes), a size (4) and whether to write (4); the
 * first line on stdout is the port.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SIZE (1 << 20)

struct connection {
	int socket;
	int file;
};

static bool receive_exactly(int fd, uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, data, len, 0);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static bool send_exactly(int fd, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static void *serve(void *arg)
{
	struct connection *connection = arg;
	uint8_t *data = malloc(MAX_SIZE), request[16];
	uint64_t offset;
	uint32_t size, is_write;
	bool ok = true;

	while (ok && receive_exactly(connection->socket, request, sizeof(request))) {
		memcpy(&offset, request, 8);
		memcpy(&size, request + 8, 4);
		memcpy(&is_write, request + 12, 4);
		offset = be64toh(offset);
		size = be32toh(size);
		if (size > MAX_SIZE)
			break;
		if (is_write)
			ok = receive_exactly(connection->socket, data, size) &&
			     pwrite(connection->file, data, size, (off_t)offset) == (ssize_t)size &&
			     send_exactly(connection->socket, request, 4);
		else
			ok = pread(connection->file, data, size, (off_t)offset) == (ssize_t)size &&
			     send_exactly(connection->socket, data, size);
	}
	close(connection->socket);
	free(data);
	free(connection);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0), file = argc == 2 ? open(argv[1], O_RDWR) : -1,
	    one = 1;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (file < 0 || bind(listener, (struct sockaddr *)&addr, len) < 0 || listen(listener, 16) < 0 ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) < 0) {
		perror("bench_files_plain");
		return 1;
	}
	printf("%u\n", ntohs(addr.sin_port));
	fflush(stdout);
	for (;;) {
		struct connection *connection = malloc(sizeof(*connection));
		pthread_t thread;

		connection->socket = accept(listener, NULL, NULL);
		connection->file = file;
		setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		pthread_create(&thread, NULL, serve, connection);
		pthread_detach(thread);
	}
}
