/*
 * A server in this process on loops of its own threads, and a client made of
 * plain blocking sockets that builds its bytes by hand, so that it shares no
 * code with what it tests.
 *
 * The scripted program is served twice: RIG_PROGRAM anywhere, RIG_HOME at home
 * only. Each procedure is one behaviour.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "rpc/server_internal.h"

#define RIG_MAX_LANES     3
#define RIG_MAX_SUSPENDED 8192
#define RIG_PROGRAM       0x20000001u
#define RIG_HOME          0x20000002u
#define RIG_SMALL         0x20000003u /* max_request is RIG_SMALL_REQUEST */
#define RIG_VERSION       4u          /* also served: RIG_VERSION_LOW; the ones between are not */
#define RIG_VERSION_LOW   2u
#define RIG_SMALL_REQUEST 128
#define RIG_MAX_REQUEST   (1u << 20)
#define RIG_RESERVE_USED  400

enum rig_proc {
	RIG_VOID = 0,
	RIG_ECHO,          /* opaque<> in, the same out */
	RIG_SUSPEND,       /* opaque<>; suspended until rig_release(), then echoed */
	RIG_DROP,          /* never answered */
	RIG_BIG,           /* u32 n in, opaque of n bytes out */
	RIG_COUNT,         /* not idempotent, replay always: how many times it was done */
	RIG_COUNT_SUSPEND, /* the same, suspended until rig_release() */
	RIG_HOLE,
	RIG_COUNT_UDP, /* replay for datagrams only */
	RIG_RESERVE,   /* u32 max in: reserves so much, uses RIG_RESERVE_USED */
	RIG_WHO,       /* peer, local, transport, flavour, uid, gid, gids, machine */
	RIG_OVERRUN,   /* puts more than it reserved */
	RIG_REFUSE,    /* the handler's own auth error */
	RIG_WORK,      /* u32 n in: spends so many units */
	RIG_N_PROCS,
};

struct rig {
	struct hf_rpc_server *server;
	struct hf_loop *loops[RIG_MAX_LANES];
	struct hf_rpc_lane *lanes[RIG_MAX_LANES];
	pthread_t threads[RIG_MAX_LANES];
	bool is_running[RIG_MAX_LANES];
	int n_lanes;
	uint16_t tcp; /* port */
	uint16_t udp;
	/* The service; suspended calls belong to the lane that serves them, the lock is for rig_suspended().
	 */
	pthread_mutex_t lock;
	pthread_cond_t one_more_suspended;
	struct hf_rpc_call *suspended[RIG_MAX_SUSPENDED];
	size_t n_suspended;
	_Atomic uint32_t count;
	_Atomic uint32_t n_served;
	_Atomic uint32_t n_away; /* RIG_HOME handlers that ran on another thread than home's */
	_Atomic uint32_t n_on[RIG_MAX_LANES];
	/* RIG_WORK, with one lane */
	uint64_t turn;
	uint32_t n_in_turn;
	_Atomic uint32_t most_in_turn;
};

extern const struct hf_rpc_limits rig_limits; /* the defaults, to be changed in a copy */

void rig_start(struct rig *rig, const struct hf_rpc_limits *limits, int n_lanes, const char *address);
void rig_stop(struct rig *rig);

/* Runs @fn on the lane's thread and waits for it. */
void rig_run_on(struct rig *rig, int lane, void (*fn)(struct rig *rig, void *arg), void *arg);
void rig_wait_suspended(struct rig *rig, size_t n); /* until so many calls are suspended */
size_t rig_suspended(struct rig *rig);
void rig_release(struct rig *rig, size_t n); /* ends the oldest @n, in their order */
void rig_drop(struct rig *rig, size_t n);    /* ends them unanswered */
void rig_wait_connections(struct rig *rig, size_t n);
void rig_wait_idle(struct rig *rig, uint64_t ns); /* until the longest idle at home has been so for that */
struct hf_rpc_counts rig_counts(struct rig *rig);

/* Asks again and again, and fails after a while (tests/until.h). */
void rig_wait(bool (*is_true)(void *arg), void *arg, const char *what);
uint64_t rig_ms(void);

/* The client */
int rig_connect(const char *to, uint16_t port, const char *from); /* @from may be NULL */
int rig_connect_small(const char *to, uint16_t port, int rcvbuf);
/* From now on little fills the kernel's buffers of the server's connections, which else grow to megabytes. */
void rig_narrow(uint16_t port);
int rig_udp(const char *from); /* not connected: sees who answers */
void rig_send_all(int fd, const void *data, size_t len);
void rig_send_record(int fd, const void *data, size_t len);
ssize_t rig_recv_record(int fd, void *data, size_t room); /* -1: closed */
bool rig_is_closed(int fd);                               /* waits for the end of the stream */
void rig_sendto(int fd, const char *to, uint16_t port, const void *data, size_t len);
ssize_t rig_recvfrom(int fd, void *data, size_t room, struct sockaddr_storage *from); /* -1: nothing */

/* Bytes */
uint8_t *rig_put(uint8_t *p, uint32_t word);
uint32_t rig_get(const uint8_t *p);
size_t rig_call(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, const void *args, size_t len);
size_t rig_call_opaque(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, const void *data,
		       uint32_t len);
size_t rig_call_word(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, uint32_t word);

/* Checks that the next record, or datagram, is just these words. */
void rig_expect_words(int fd, const uint32_t *words, size_t n);
/* The next record is a success with this xid: its results. */
size_t rig_expect_success(int fd, uint32_t xid, uint8_t *results, size_t room);
void rig_check_success(const uint8_t *reply, ssize_t len, uint32_t xid);
