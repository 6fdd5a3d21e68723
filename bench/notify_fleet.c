/*
 * A fleet of clients in one process: every address of 10.77.0.0/16 has an
 * rpcbind at 111 and a statd at 4045 (UDP), every address of 10.78.0.0/16 is a
 * black hole. To be run in a network namespace where both networks are local
 * ("ip route add local 10.77.0.0/16 dev lo").
 *
 * Asked at 127.0.0.1:4046: "reset" forgets who was told; "told" answers
 * "N FIRST LAST": how many, and when, in seconds of the monotonic clock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	PORT_RPCBIND = 111,
	PORT_STATD = 4045,
	PORT_CONTROL = 4046,
	PROC_GETPORT = 3,
	BUFFER = 8u << 20,
};

#define FLEET 0x0a4d0000u /* 10.77.0.0 */

struct fleet {
	bool told[65536];
	uint32_t n_told;
	double first, last;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int open_port(const char *address, uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1, size = BUFFER;

	inet_pton(AF_INET, address, &sin.sin_addr);
	setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0) {
		perror("notify_fleet: bind");
		exit(1);
	}
	return fd;
}

static void note(struct fleet *fleet, uint32_t address)
{
	if (fleet->told[address & 0xffff])
		return;
	fleet->told[address & 0xffff] = true;
	fleet->last = now();
	if (fleet->n_told++ == 0)
		fleet->first = fleet->last;
}

/* The success reply to the call in @message: xid, REPLY, accepted, no verifier, success, then the port if
 * asked. */
static size_t answer(const uint8_t *message, uint32_t *reply, bool is_rpcbind)
{
	uint32_t procedure;

	memset(reply, 0, 7 * sizeof(*reply));
	memcpy(&reply[0], message, 4);
	memcpy(&procedure, message + 20, 4);
	reply[1] = htonl(1);
	if (!is_rpcbind || ntohl(procedure) != PROC_GETPORT)
		return 24;
	reply[6] = htonl(PORT_STATD);
	return 28;
}

static void serve(struct fleet *fleet, int fd, bool is_rpcbind)
{
	uint8_t message[2048];
	uint32_t reply[7];
	char control[256];
	struct sockaddr_in peer;
	struct iovec iov = { message, sizeof(message) };
	struct msghdr header = { .msg_name = &peer,
				 .msg_namelen = sizeof(peer),
				 .msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &header, MSG_DONTWAIT);
	struct cmsghdr *cmsg = n < 24 ? NULL : CMSG_FIRSTHDR(&header);
	struct in_pktinfo info;
	uint32_t address;

	if (!cmsg)
		return;
	memcpy(&info, CMSG_DATA(cmsg), sizeof(info));
	address = ntohl(info.ipi_addr.s_addr);
	if ((address & 0xffff0000u) != FLEET)
		return;
	if (!is_rpcbind)
		note(fleet, address);
	iov = (struct iovec){ reply, answer(message, reply, is_rpcbind) };
	info.ipi_ifindex = 0;
	info.ipi_spec_dst = info.ipi_addr; /* from the address that was asked */
	memcpy(CMSG_DATA(cmsg), &info, sizeof(info));
	sendmsg(fd, &header, 0);
}

static void control(struct fleet *fleet, int fd)
{
	char text[64];
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);
	ssize_t n = recvfrom(fd, text, sizeof(text), MSG_DONTWAIT, (struct sockaddr *)&peer, &len);

	if (n < 0)
		return;
	if (n == 5 && memcmp(text, "reset", 5) == 0)
		memset(fleet, 0, sizeof(*fleet));
	n = snprintf(text, sizeof(text), "%u %.6f %.6f", fleet->n_told, fleet->first, fleet->last);
	sendto(fd, text, (size_t)n, 0, (struct sockaddr *)&peer, len);
}

int main(void)
{
	static struct fleet fleet;
	struct pollfd fds[3] = {
		{ open_port("0.0.0.0", PORT_RPCBIND), POLLIN, 0 },
		{ open_port("0.0.0.0", PORT_STATD), POLLIN, 0 },
		{ open_port("127.0.0.1", PORT_CONTROL), POLLIN, 0 },
	};

	while (poll(fds, 3, -1) > 0) {
		for (int i = 0; i < 64 && fds[0].revents; i++)
			serve(&fleet, fds[0].fd, true);
		for (int i = 0; i < 64 && fds[1].revents; i++)
			serve(&fleet, fds[1].fd, false);
		if (fds[2].revents)
			control(&fleet, fds[2].fd);
	}
	return 0;
}
