/*
 * A load generator for RPC servers: a few connections or one UDP socket each
 * with a number of calls under way, one thread, epoll, nothing else. It sends
 * ready-made messages with a fresh xid each and counts the replies.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct load_message {
	uint8_t data[1024]; /* a call, without record mark; its xid is overwritten */
	size_t len;
};

struct load_setup {
	const char *address; /* IPv4 */
	uint16_t port;
	bool udp;
	int n_connections;
	int depth;
	/* Message number @n of connection @connection; the same pointer may be given again. */
	const struct load_message *(*message)(void *user, int connection, uint64_t n);
	void *user;
	double seconds;
	uint64_t n_calls;    /* it ends after so many, too; 0: as many as there are in that time */
	bool is_echo;        /* the server sends back what it gets */
	size_t reply_offset; /* check: where in the reply a word must be reply_word; 0: no check */
	uint32_t reply_word;
};

struct load_result {
	uint64_t n_calls;
	uint64_t n_wrong; /* replies that failed the check */
	double rate;      /* calls a second */
	double p50_us;    /* latency of sampled calls */
	double p99_us;
};

int load_run(const struct load_setup *setup, struct load_result *resultp);

/* A bare epoll loop that sends back what comes, on its own thread: the physical limit. */
struct load_echo;
int load_echo_start(struct load_echo **echop, bool udp, uint16_t *portp);
/* The same over TCP, but it says @reply, with the right xid, to whatever is asked. */
int load_answer_start(struct load_echo **echop, const void *reply, size_t len, uint16_t *portp);
pid_t load_echo_pid(const struct load_echo *echo);
void load_echo_stop(struct load_echo *echo);

/* holdfastd (the program beside this one) with a state directory of its own. @settings are KEY=VALUE, or
 * other options that begin with two dashes. */
struct load_daemon;
int load_daemon_start(struct load_daemon **daemonp, const char *program, const char *const *settings,
		      uint16_t *portp);
void load_daemon_stop(struct load_daemon *daemon);
pid_t load_daemon_pid(const struct load_daemon *daemon);
/* CPU seconds that a process and its threads have used so far. Where others use the machine, too, this says
 * more of a server than its rate. */
double load_cpu(pid_t pid);

/* Header of an AUTH_NONE call; returns its length. */
size_t load_put_header(uint8_t *out, uint32_t program, uint32_t version, uint32_t procedure);
