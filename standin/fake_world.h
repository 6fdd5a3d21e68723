/*
 * A world in memory: loops, time and a network without a kernel beneath them. It is the
 * stand-in for loop/uv_*.c in unit tests and fuzz targets.
 *
 * Everything happens on one thread and only when it is told to, so that the same steps
 * give the same result. A world has one clock and one network; each of its loops has its
 * own sockets. Streams are pairs of bounded pipes. A datagram arrives at once, or is lost
 * if there is no socket, or too many datagrams wait at it.
 *
 * A stream's other end is either a socket of a loop of this world, or a fake_peer, which
 * belongs to the code that plays the client.
 *
 * The simulation has a world of its own (sim/loop.c): it decides there by its seed when a
 * packet comes, what is lost, and at which operation the server is killed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct hf_loop;
struct fake_world;
struct fake_peer;

/* World */
struct fake_world *fake_world_new(uint64_t seed);
void fake_world_free(struct fake_world *world); /* after its loops, by hf_loop_free(), and its peers */
int fake_loop_new(struct hf_loop **loopp, struct fake_world *world);
int fake_loop_new_alone(struct hf_loop **loopp);                  /* in a world that ends with it */
void fake_world_set_pipe(struct fake_world *world, size_t bytes); /* room of pipes made from now on */

/* Time: a turn of each loop serves what is ready now, and says whether anything was. */
bool fake_world_turn(struct fake_world *world);
void fake_world_settle(struct fake_world *world);                  /* turns until nothing is ready */
void fake_world_advance(struct fake_world *world, uint64_t by_ns); /* settles, timer by timer */
uint64_t fake_world_now(const struct fake_world *world);

/* Connections from outside; NULL: no socket listens there. Each is freed by its owner. */
struct fake_peer *fake_peer_connect(struct fake_world *world, const struct hf_addr *from,
				    const struct hf_addr *to);
void fake_peer_free(struct fake_peer *peer); /* closes it, too */
size_t fake_peer_send(struct fake_peer *peer, const void *data,
		      size_t len);                                        /* as much as there is room for */
size_t fake_peer_receive(struct fake_peer *peer, void *data, size_t len); /* as much as there is */
void fake_peer_end(struct fake_peer *peer);                               /* sends no more */
void fake_peer_reset(struct fake_peer *peer);                             /* breaks it, both ways */
bool fake_peer_is_closed(const struct fake_peer *peer); /* by the other end; all was received */

/* Datagrams from outside; what is sent to an address that is no socket's waits in the world. */
bool fake_datagram_send(struct fake_world *world, const struct hf_addr *from, const struct hf_addr *to,
			const void *data, size_t len);
/* The oldest one: its length, or -1 where there is none. */
ssize_t fake_datagram_receive(struct fake_world *world, struct hf_addr *fromp, struct hf_addr *top,
			      void *data, size_t room);
