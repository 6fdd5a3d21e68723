/*
 * The simulated world: one server, the product's own code, among clients, a network, a disk
 * and faults. One number, the seed, decides all of it.
 *
 *	arena.c     memory that is lost with the process
 *	rng.h       random numbers
 *	world.c     time, the order of events, the trace
 *	loop.c      the loop backend under the server's code
 *	net.c       datagrams, and what happens to them
 *	stream.c    connections
 *	worker.c    the questions of locks about files
 *	fate.c      files that are deleted, withdrawn or forbidden
 *	reload.c    the server's list of exports, and what is stored of files that are not in it
 *	slow.c      writes that take seconds
 *	disk.c      the store backend: what does a crash leave?
 *	stored.c    what is on the disk
 *	server.c    starts, stops and kills the server
 *	node.c      a node of a cluster: which one serves, and until when?
 *	database.c  the database of a cluster: the row of the service, and what a failover leaves
 *	failover.c  faults of nodes and of their database
 *	plan.c      which faults come, and when
 *	sequence.c  every short sequence of what one host can do
 *	host.c      a client host: lockd, statd, rpcbind
 *	talk.c      its calls
 *	life.c      its crashes, restarts and new names
 *	process.c   programs that lock
 *	having.c    the locks that programs were told they have
 *	reclaim.c   reclaims after the server's restart
 *	thread.c    two threads of one program
 *	pipe.c      calls that do not wait for the reply to the call before
 *	patience.c  programs that do not wait for a reply
 *	part.c      programs that downgrade or unlock a part of a lock
 *	reservation.c  programs that reserve files, as DOS does
 *	monitor.c   a lock manager on the server's host that has it watch others
 *	nat.c       two hosts behind one address
 *	ordinary.c  hosts that call from an ordinary port, and repeat their notices
 *	rogue.c     a forger of single messages
 *	session.c   TLS connections: which hosts have one, and until when
 *	identity.c  which files demand TLS, and what must be true of calls beside it
 *	intruder.c  a forger at the address of a host whose connection is over
 *	flood.c     a forger that takes all that it can get
 *	tap.c       looks at everything that leaves the server
 *	check.c     what must be true after every step
 *	order.c     what must be true of waiters
 *	rest.c      what must be true at the end
 *	run.c       one schedule
 *	shrink.c    a smaller schedule that breaks the same rule
 *	main.c      many schedules
 */
#pragma once

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/list.h"
#include "cluster/node.h"
#include "export/export.h"
#include "lock/lock.h"
#include "loop/backend.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "recovery/recovery.h"
#include "rng.h"
#include "standin/disk_view.h"

#define MAX_NODES  2
#define MAX_HOSTS  5
#define MAX_PROCS  3
#define MAX_FILES  3
#define N_UNITS    8   /* of a file: each lock covers some of these, side by side */
#define UNIT_BYTES 100 /* the last unit goes to the end of the file */
#define MAX_FAULTS 40
#define N_SLOTS    64 /* addresses that hosts ever have */
#define HANDLE_LEN 32
#define MAX_ACTS   12 /* of a sequence */

#define SERVER_PORT 2049
#define MS          HF_NS_PER_MS
#define SECOND      HF_NS_PER_S

#define STRAGGLER_NS (6 * SECOND) /* no datagram is under way for longer */

struct world;
struct host;
struct matching;
struct conn;
struct sock;

/* What can be left out to make a schedule smaller. */
enum {
	OMIT_LOSS = 1 << 0,
	OMIT_DOUBLES = 1 << 1,
	OMIT_DELAYS = 1 << 2,
	OMIT_ROGUE = 1 << 3,
	OMIT_SLOW_DISK = 1 << 4,
	OMIT_LATENCY = 1 << 5,
	OMIT_PIPES = 1 << 6,
	OMIT_FILES = 1 << 7,
	OMIT_PARTS = 1 << 8,
	OMIT_FATES = 1 << 9,
	OMIT_PATIENCE = 1 << 10,
	OMIT_FLOOD = 1 << 11,
	OMIT_ORDINARY = 1 << 12,
	OMIT_HOST_0 = 1 << 13, /* and so on for the others */
};

struct sim_options {
	uint64_t seed;
	uint32_t omit;
	uint64_t omit_faults;  /* by index */
	uint32_t n_steps;      /* of the troubled part, at most; 0: as the seed has it */
	bool continues;        /* recovery.after_crash: the server goes on where it ended, where it can */
	bool has_more_forgers; /* in every schedule, with more crashes of clients */
	bool is_cluster;       /* two nodes and a database */
	bool has_tls;          /* some files demand TLS */
	uint32_t n_acts;       /* 0: a random schedule; else a sequence of so many acts (sequence.c) */
	bool is_verbose;
};

struct sim_counts {
	uint64_t schedules;
	uint64_t virtual_ns;
	uint64_t steps; /* turns of the server and events outside */
	uint64_t turns;
	uint64_t calls; /* of clients */
	uint64_t granted;
	uint64_t reclaimed;
	uint64_t callbacks;      /* GRANTED that a client accepted */
	uint64_t daemon_crashes; /* of which in the middle of a turn: */
	uint64_t amid_crashes;
	uint64_t machine_crashes;
	uint64_t clean_stops;
	uint64_t continued; /* starts that went on where the last run had ended */
	uint64_t host_crashes;
	uint64_t partitions;
	uint64_t store_failures;
	uint64_t datagrams, lost, doubled;
	uint64_t forgeries; /* of the rogue */
	uint64_t floods;    /* messages of the flood */
	uint64_t repeated;  /* notices that a host sent again */
	uint64_t forfeits;  /* locks that a client could not reclaim in time */
	uint64_t stale_grants;
	uint64_t questions; /* about files */
	uint64_t stalls;    /* writes of the store that took seconds */
	uint64_t kills;     /* of programs with a LOCK under way */
	uint64_t given_up;  /* LOCKs whose reply the program did not wait for */
	uint64_t never;     /* questions whose answer would come after the end */
	uint64_t refusals;  /* because of a file */
	uint64_t reloads;   /* of the list of exports, */
	uint64_t returns;   /* that brought a file back which this run of the server had not had */
	uint64_t takeovers; /* terms that another node began, of which */
	uint64_t moved;     /* were handed over */
	uint64_t halts;     /* of processes and machines that went on later */
	uint64_t node_cuts; /* from the database or from all clients */
	uint64_t db_crashes, promotions;
	uint64_t sessions;    /* TLS connections that began */
	uint64_t intrusions;  /* calls in the name of a host that has none */
	uint64_t tls_refused; /* calls of hosts that had none */
	uint64_t violations;
};

struct sim_result {
	uint64_t digest;
	bool has_failed;
	char rule[8];
	char what[400];
	bool is_void;      /* the acts of the sequence make no sense in this order */
	uint64_t n_faults; /* that there were */
	uint32_t n_steps;
	uint32_t n_hosts;
	struct sim_counts counts;
};

/* Some units of a file. */
struct span {
	uint8_t file;
	uint8_t first;
	uint8_t last;
	uint8_t mode; /* enum hf_lock_mode */
};

/* DISK */
struct disk_write {
	struct hf_store_batch *batch; /* of the process that wrote it; NULL: none */
	struct server *server;
	struct hf_timer timer;
	uint64_t epoch; /* of the run that wrote it, which may be dead; 0: it has not begun one */
	uint8_t *bytes;
	uint32_t len;
	enum hf_store_kind kind;
	uint64_t sent_at;
	int result;
	bool is_gone; /* with the database that it was sent to */
	bool is_applied;
	bool is_over;
};

#define MAX_UNSYNCED 128

struct disk {
	struct disk_view cached;         /* survives a crash of the process */
	struct disk_view synced;         /* survives a crash of the machine */
	struct disk_view replica;        /* of the database of a cluster; some seconds old */
	uint8_t *unsynced[MAX_UNSYNCED]; /* batches that are only in the cache */
	uint32_t unsynced_len[MAX_UNSYNCED];
	uint32_t n_unsynced;
	uint64_t fails_until;
	uint64_t slow_until;
};

/* SLOW */
struct slow {
	struct rng rng;
	unsigned int n_of_1000; /* writes that take seconds */
	bool is_next;           /* the next write does */
};

/* DATABASE */

/* The row of the service; see store/service.h. */
struct db_row {
	bool has_lease;
	char owner[HF_SERVICE_OWNER]; /* that each commit checks, with the epoch */
	uint64_t epoch;
	char lease_owner[HF_SERVICE_OWNER];
	uint32_t node; /* the last one that served */
	uint64_t renewals;
	char heir[8], wanted[8];
	bool is_unsynced, was_unsynced; /* commits did not wait for the replica */
	uint32_t history;               /* the timeline of which the owner is sure */
};

struct database {
	struct rng rng;
	bool is_away;
	struct hf_timer timer;   /* until it is back */
	uint32_t boot;           /* of the process */
	uint32_t timeline;       /* of its history: a promoted replica begins another one */
	bool has_synced_replica; /* each synced commit waits for the replica */
	bool has_lost;           /* the locks in it are not all that clients were told */
	struct db_row row;
	uint64_t seen_at[MAX_NODES]; /* when it last heard of the node; 0: never */
	const char *roles[MAX_NODES];
	struct hf_timer replica_timer; /* the next time at which an asynchronous replica is up to date */
	struct db_row replica_row;
	char term[HF_SERVICE_OWNER]; /* the owner of the newest claim that there ever was */
	bool is_fenced[MAX_NODES];   /* the command has succeeded since the node last claimed or renewed */
};

/* WORKER */
struct answer {
	struct hf_job *job; /* of the process that asked; NULL: none */
	struct server *server;
	struct hf_timer timer;
	bool is_there;
};

struct worker {
	struct rng rng;
	bool is_asked;     /* false: the server does not ask, and handles are opaque to it */
	bool has_one_disk; /* for all files */
	uint64_t usual_ns, longest_ns;
	unsigned int n_of_1000; /* answers that never come */
};

/* FATE */
enum fate_kind {
	FATE_DELETED,
	FATE_WITHDRAWN, /* its export is withdrawn */
	FATE_BARRED,    /* it is forbidden, for some hosts */
	FATE_READ_ONLY,
	FATE_BROKEN,
	N_FATE_KINDS,
};

struct fate {
	struct hf_timer timer; /* until it begins, or ends */
	struct world *world;
	enum fate_kind kind;
	uint8_t file;
	uint8_t hosts; /* by index: the hosts that it is about, if not all */
	bool is_on;
	uint64_t lasts;
};

/* What a host may do with a file. */
struct right {
	int answer;          /* HF_CHECK_… */
	uint64_t changed_at; /* 0: never */
};

#define MAX_FATES 6

struct fates {
	struct rng rng;
	struct fate all[MAX_FATES];
	uint32_t n;
	struct right rights[MAX_FILES][MAX_HOSTS][2]; /* to read, to write */
	uint64_t n_loads;                             /* of the list of exports */
	uint64_t n_changes;                           /* of files */
	uint64_t changed[MAX_FILES];                  /* the number of its last one */
	uint64_t n_heard;                             /* how many of n_changes the server has read */
};

/* SERVER */
struct sim_loop {
	struct hf_loop loop; /* first */
	struct world *world;
	struct server *server;
};

/* A waiter that was granted its lock. */
struct grant_seen {
	uint64_t id;
	const struct hf_lock_client *client;
	const struct host *host; /* the host of the waiter */
	uint64_t owner;
	struct hf_range range;
	uint64_t at;
	uint8_t file;
	uint8_t mode;
};

struct waiter_seen {
	uint64_t id;
	bool had_nothing; /* its client had no locks when it began to wait */
};

#define MAX_SEEN 128

/* NODE */

/* A step under way to the database and back. */
struct request {
	struct hf_timer timer;
	struct server *server;
	bool is_used;
	bool is_held;      /* the process was halted before the request left */
	bool is_answered;  /* by the database */
	bool is_abandoned; /* the process that asked is dead */
	bool is_report;
	enum hf_node_step step;
	uint64_t sent; /* by the clock of the node */
	int result;
	char owner[HF_SERVICE_OWNER];
	char heir[8];
	struct db_row seen;
	uint32_t timeline; /* of the database, as it was seen, or as the owner is sure of it */
	struct hf_service_row answer;
};

enum node_event {
	NODE_DEPOSED = 1 << 0,
	NODE_CLAIMED = 1 << 1,
	NODE_HANDS_OVER = 1 << 2,
	NODE_TAKEN = 1 << 3, /* the store says that another run uses it */
};

struct node {
	bool has_process;
	struct hf_node *machine; /* its decisions; NULL: the process is dead */
	char name[8], instance[8];
	struct hf_lease lease;
	int64_t drift; /* of its clock, in a million */
	uint64_t slept_ns;
	bool has_no_database; /* it is cut off from it */
	bool has_no_clients;
	bool has_no_link; /* from its clients, and it sees that */
	uint64_t halted_until;
	uint64_t lag;     /* its process was halted within this turn, and goes on that much later */
	uint32_t halt_in; /* this many operations from now; 0: not armed */
	uint64_t halt_ns;
	char owner[HF_SERVICE_OWNER]; /* of the service that runs */
	bool is_deposed;              /* a successor has begun, and this service still runs */
	bool has_address;
	uint64_t address_until; /* by its clock: the kernel removes it then */
	uint64_t known_epoch;   /* on its disk */
	int32_t known_state;
	unsigned int events;
	uint64_t event_ns; /* its home loop hears of its next deposition that much later */
	bool must_report;
	uint64_t unfit_at; /* it could not serve then, for any reason */
	uint64_t leave_by; /* the process ends when the service is handed over, or then; 0: it stays */
	struct hf_timer step_timer, event_timer, halt_timer;
	struct request requests[2]; /* one may be of a process that is dead */
	struct request *request;    /* under way; NULL: none */
};

enum crash_kind {
	CRASH_NONE,
	CRASH_DAEMON,
	CRASH_MACHINE,
};

struct server {
	struct world *world;
	uint32_t index; /* of the node that it runs on */
	struct sim_loop *loop;
	struct hf_rpc_client *client;
	struct hf_recovery *recovery; /* NULL: it has stopped in order */
	struct hf_recovery *stopping;
	struct hf_nlm *nlm;
	struct hf_nsm *nsm;
	struct hf_rpc_server *rpc;
	struct hf_rpc_lane *lane;
	struct hf_disk_queue *disk_queue; /* NULL: the server asks for no file */
	struct hf_rpc_presence *presence; /* NULL: no file demands TLS */
	struct hf_recovery_observer observer;
	struct node node;
	struct hf_list socks;
	struct answer answers[8];
	struct disk_write writes[3];
	struct hf_store *store; /* NULL: not open */
	struct hf_store *recovering;
	struct hf_timer recover_timer;
	bool is_recovered;
	bool is_session_ended; /* the database has ended the session of its store */

	bool is_up;        /* the process runs */
	bool has_machine;  /* it has power */
	bool is_running;   /* its code is on the stack */
	bool is_stopping;  /* in order */
	jmp_buf death;     /* the way out of the middle of a turn */
	uint32_t crash_in; /* this many operations from now; 0: not armed */
	enum crash_kind kind;
	uint64_t turn_at;   /* the time of its next turn; UINT64_MAX: it sleeps */
	bool could_promise; /* when this turn began: replies are made in it, and leave at its end */
	uint32_t life;
	uint32_t boot;
	uint64_t started_at;
	uint64_t told_since; /* what programs were told from then on is held: the start of the first of the
			      * runs that went on where the one before had ended */
	uint8_t exported;    /* files whose exports this run has, or had: what it has of them stays */
	bool must_reload;    /* with its next turn */
	bool was_complete;   /* is_complete when this run began */
	bool continues;      /* what recovery.after_crash of this run says */
	bool has_continued;  /* this run did */
	uint32_t n_waiting;  /* waiters and grants in flight that were stored when it started */
	int32_t state;       /* the last one seen */
	bool is_feigning;    /* its number is about to rise without a restart */
	uint64_t feigned_at; /* when it rose; 0: not in this epoch */
	struct hf_timer start_timer;
	bool grace_is_on;
	bool grace_ran_out; /* in this epoch, by time or by an operator */
	bool grace_over;    /* just now */
	bool grace_by_hand;
	uint64_t grace_ended_at;            /* in this epoch; 0: it has not */
	uint64_t lost_before;               /* locks told before this, and not reclaimed, are lost */
	struct grant_seen grants[MAX_SEEN]; /* the newest events of this epoch */
	uint32_t n_grants, n_grants_checked;
	struct waiter_seen waiters[MAX_SEEN];
	bool is_complete; /* the loaded locks are all that there were */
	bool has_lost; /* the database had lost some, and perhaps the registrations of their clients, too */

	/* As configured, for all epochs */
	int durability;
	uint64_t window_ns;
	uint64_t notify_retry_ns;
	size_t notify_parallel;
	size_t max_clients;
	uint64_t idle_ns;          /* until a client without locks is unregistered */
	uint32_t told_in[N_SLOTS]; /* the epoch in which a client at this address was told of it */
	bool early_end;
};

/* HOSTS */
enum flavour {
	LINUX_TCP, /* synchronous calls, polls, both kinds of call-back */
	LINUX_UDP,
	BSD, /* _MSG and _RES by UDP */
};

enum awakening { /* how a host says that it was restarted */
	BY_NOTIFY,
	BY_FREE_ALL,
	BY_STATE, /* only by the state number in its next LOCK */
};

enum call_kind {
	CALL_LOCK,
	CALL_UNLOCK,
	CALL_CANCEL,
	CALL_TEST,
	CALL_RECLAIM,
	CALL_SHARE,
	CALL_UNSHARE,
	CALL_RESHARE,  /* to reclaim */
	CALL_NOTIFY,   /* SM_NOTIFY */
	CALL_FREE_ALL, /* likewise */
	CALL_RES,      /* GRANTED_RES: it has no reply */
};

#define MAX_MESSAGE 512

/* How a call was sent. Of two calls that were sent once, on one connection, the one with the lower xid was
 * first. */
struct sending {
	uint32_t xid;
	uint32_t connection; /* the last one; 0: none */
	uint32_t n;          /* times */
};

struct call {
	struct hf_link link; /* of host->calls */
	struct hf_timer timer;
	struct host *host;
	struct proc *proc; /* or NULL */
	enum call_kind kind;
	struct span span;
	bool blocks;
	bool by_tcp;
	bool is_sent;        /* on the present connection */
	bool is_fresh;       /* the server had no lock of this owner there */
	bool is_excused;     /* the store had failed when it was answered */
	uint32_t blocked_in; /* the last epoch in which BLOCKED left for it; 0: none */
	struct sending sending;
	uint64_t cookie;
	uint64_t made_at;
	int32_t server_state; /* as the client knew it */
	uint32_t server_life; /* the epoch */
	uint32_t tries;
	uint64_t gap;
	uint16_t len;
	uint8_t bytes[MAX_MESSAGE];
};

enum phase {
	IDLE,
	LOCKING, /* the LOCK is under way */
	WAITING, /* BLOCKED: for the call-back, or the next poll */
	CANCELLING,
	UNLOCKING,
	TESTING,
	SHARING,
	CLOSING, /* it was told to close the file again later */
	PAUSING, /* the server has told it of a grace period */
	DONE,
};

/* A file that a program has reserved. */
struct reservation {
	uint8_t access, deny;
	bool is_open;                  /* it has to be closed */
	bool has, is_firm, is_phantom; /* as of locks, below */
	bool is_lost;                  /* a phantom that another program had since */
	uint32_t n_unheard;            /* reclaims that it repeated before it had a reply */
};

/* The locks that a program was told it has, by unit. */
struct owned {
	uint8_t has[MAX_FILES][N_UNITS];
	uint8_t firm[MAX_FILES][N_UNITS];    /* told in this epoch of the server */
	uint8_t phantom[MAX_FILES][N_UNITS]; /* it had them, and could not reclaim them in time */
	uint64_t lost_at[MAX_FILES][N_UNITS];
	struct sending by[MAX_FILES][N_UNITS]; /* the LOCK with that reply; n == 0: a call-back */
	bool freed[MAX_FILES][N_UNITS]; /* it was told so while the store was away, and has not asked since */
};

struct proc {
	struct host *host;
	struct hf_timer timer;
	uint32_t svid;
	enum phase phase;
	struct span span; /* the range that it wants */
	uint8_t closing;  /* the file, while CLOSING */
	bool blocks;
	bool is_called_back;     /* while its LOCK for the range is under way */
	int32_t called_back_in;  /* the server's state number then */
	bool wants_out;          /* it unlocks everything before it goes on */
	uint64_t waits_since;    /* when its first LOCK for the range was sent */
	uint64_t denied_at;      /* when it was called back for the range while it paused */
	struct call *call;       /* under way, or NULL */
	struct sending answered; /* the last answered call; n == 0: it was called back */
	struct sending blocked;  /* the last LOCK for the range of its call-back; n == 0: it is under way */
	struct hf_timer kill_timer;
	struct hf_timer death_timer; /* of its host */
	struct hf_timer patience_timer;
	bool is_unheard;          /* a LOCK that it no longer waits for may be under way */
	bool is_hurried;          /* it must lock something right behind the other thread */
	uint8_t newer[N_UNITS];   /* units that the other thread was told meanwhile: asked for later, */
	uint8_t crossed[N_UNITS]; /* or in an unknown order */
	uint8_t downgraded[N_UNITS];
	uint64_t kept_at; /* when the server last served a shared LOCK of it over an exclusive grant in
			   * flight */
	uint32_t n_asked, n_put_off; /* for the present range: calls, and replies that it does not have it */
	uint8_t files_touched;
	struct owned *own; /* shared by all threads of a program */
	struct owned owned;
	struct reservation reservations[MAX_FILES];
};

/* SESSION */

/* The certificates that there are: one for each host, and the intruder's. */
enum {
	INTRUDER = MAX_HOSTS,
	NO_CERTIFICATE,
	N_IDENTITIES,
};

#define MAX_SESSIONS 32
#define N_VOUCHED    16

/* A TLS connection, as the server has it. */
struct session {
	struct world *world;
	struct hf_rpc_presence_link *link; /* of the server's process; NULL: there is no such connection */
	struct hf_timer timer;             /* the host is gone, and the server learns of it then */
	uint32_t slot;
	uint8_t identity;
};

/* An identity at an address, as it is known outside of the server. */
struct presence {
	uint32_t n;                  /* connections */
	uint64_t begun_at, ended_at; /* of the last one; 0: none in this run of the server */
};

/* What a host has of TLS. */
struct user_of_tls {
	bool uses; /* false: it never connects */
	uint8_t identity;
	bool is_renewed; /* its certificate was, and has one more name */
	struct session *session;
	uint64_t since;        /* the session is there; 0: it is not */
	uint32_t life;         /* the last one in which it was */
	struct hf_timer timer; /* until it connects, or its connection ends */
	uint64_t kept_until;   /* it does not connect before that */
	bool holds;            /* a lock in a file that demands TLS */
	bool holds_by_name;    /* in one that demands a certificate */
	bool was_bound;        /* when the server was started, */
	char bound_to[64];     /* to this name of its certificate; "": none */
	uint64_t vouched_at;   /* its last call that was served was not made before that */
	struct {
		uint64_t made_at, seen_at;
	} vouched[N_VOUCHED]; /* by its last calls */
	uint32_t n_vouched;
	bool has_taken; /* something that demands TLS, in this epoch, */
	bool is_named;  /* by the name of its certificate */
};

/* The name in the notices of a host. Its lock manager gives the one that its system was given. */
enum notice_name {
	NAMED_OWN,
	NAMED_LONG, /* with the domain; then once more without it, as sm-notify does */
	NAMED_OTHER
};

struct host {
	struct world *world;
	struct rng rng;
	uint32_t index;
	uint32_t slot; /* its address */
	bool is_up;
	uint32_t life;
	char name[24];
	char old_name[24]; /* "": none */
	struct hf_addr addr;
	struct hf_addr server;
	enum flavour flavour;
	enum awakening awakening;
	uint32_t version; /* of NLM */
	int32_t state;
	int32_t statd_state; /* the number that its statd gives: the old one, if it was started before
			      * sm-notify */
	bool hides_state;    /* sends 0 */
	bool has_udp, has_tcp;
	bool knows_granted, knows_granted_msg; /* one of them at least */
	uint64_t grace_ns; /* its own grace after each boot, in which it accepts no grant */
	uint64_t grace_until;
	uint64_t healed_at;    /* when it was last connected again */
	uint64_t put_off_at;   /* when it last answered so, or that it reclaims */
	uint32_t promised_in;  /* the epoch in which it was first told GRANTED or BLOCKED; 0: none */
	bool lacks_number;     /* the database went back, and may not have the number of its life */
	uint64_t numbered_at;  /* when a LOCK with a new number last told the server of a restart */
	uint64_t lacked_until; /* when such a LOCK ended lacks_number; 0: none did */
	uint16_t lockd_port, statd_port;
	bool cut_in, cut_out; /* to and from the server */
	struct hf_timer boot_timer;
	struct hf_timer cut_timer;
	struct hf_timer rename_timer;
	bool is_renaming; /* as soon as nothing of its old name is under way */
	uint64_t quiet_since;
	struct host *gateway; /* the host whose address it has: it cannot be called; NULL: its own address */
	bool is_shared;       /* another host has its address, too */
	bool is_secretive;    /* its statd gives no number, */
	bool is_silent;       /* or does not answer the question for it */
	bool has_fixed_port;  /* for its lock manager */
	bool has_late_statd;  /* at its next boot, in a sequence */
	bool frees_without_number; /* its FREE_ALL says 0 */
	enum notice_name notice_name;
	bool is_ordinary;  /* it calls from an ordinary port, over TCP */
	bool was_stored;   /* its registration, when this run began */
	bool is_port_lost; /* its locks were stored, and its registration, which says from which port, was not
			    */
	struct rng ordinary_rng;
	struct hf_timer repeat_timer;
	bool uses_reservations;
	bool has_threads;   /* its second program is a thread of the first */
	bool pipelines;     /* it does not always wait for a reply before it calls again */
	bool changes_parts; /* of its locks */
	bool is_impatient;
	struct rng pipe_rng, part_rng, patience_rng;
	bool is_unmonitored; /* NM_LOCK: it is not told of a restart, and its locks end with the server */
	struct hf_list calls;
	struct conn *conn;
	uint32_t n_connections; /* that it ever had */
	uint32_t next_xid;      /* rises over all its restarts */
	struct hf_timer connect_timer;
	int32_t server_state; /* that its statd knows */
	int32_t newest_heard; /* a late notice may come after a newer one */
	bool is_reclaiming;
	uint32_t reclaim_at; /* how far its reclaims have come */
	struct hf_timer reclaim_timer;
	struct rng reclaim_rng;
	bool has_forged_lock;      /* the rogue sent a LOCK in its name, from another port */
	uint32_t lied_about_in;    /* the epoch in which the rogue made up a number for it; 0: none */
	uint32_t told_life;        /* the server has acknowledged that this life began */
	uint32_t n_evidence;       /* messages under way that tell of it */
	enum crash_kind ends_with; /* how the server dies when it has acknowledged that */
	uint32_t ends_in;          /* operations after that */
	struct user_of_tls tls;
	struct proc procs[MAX_PROCS];
	uint32_t n_procs;
};

/* FAULTS */
enum fault_kind {
	FAULT_DAEMON,
	FAULT_MACHINE,
	FAULT_RESTART, /* in order */
	FAULT_CUT,
	FAULT_HOST,
	FAULT_HOST_MOVES, /* crashes, and has another address afterwards */
	FAULT_HOST_THEN,  /* crashes; and the server crashes as soon as it has acknowledged that */
	FAULT_STORE,
	FAULT_SLOW,
	FAULT_RESET,
	FAULT_RENAME,
	FAULT_GRACE_END,
	FAULT_NOTIFY,
	FAULT_ROGUE,
	FAULT_HALT, /* from here on: only in a cluster */
	FAULT_SLEEP,
	FAULT_NODE, /* the standby's process is killed */
	FAULT_BOTH, /* both processes are */
	FAULT_NO_DATABASE,
	FAULT_NO_CLIENTS,
	FAULT_NO_LINK,
	FAULT_DATABASE,
	FAULT_DATABASE_CRASH,
	FAULT_PROMOTION,
	FAULT_MOVE,
	FAULT_TAKE,
	FAULT_LAPSE,  /* the rogue strikes just before the lease ends, and the database answers later */
	FAULT_RETURN, /* the other node takes over and leaves again, while the first one sees nothing of it */
	N_FAULT_KINDS,
};

struct fault {
	enum fault_kind kind;
	struct hf_timer timer;
	struct world *world;
	uint32_t index;
	uint32_t host;
	uint64_t at;
	uint64_t lasts;
	uint32_t number;        /* as the kind has it */
	bool has_struck;        /* the rogue, before connections break or a lease ends */
	struct hf_timer sequel; /* of RETURN: looks how far it is */
	struct server *server;  /* the node that was cut off */
	uint64_t until;         /* it ends then at the latest */
};

struct knobs {
	unsigned int loss, doubles, slow; /* in a thousand */
	uint64_t longest_ns;              /* delay of a slow datagram */
	unsigned int lazy;                /* turns of the server that come late */
	unsigned int fail;                /* single writes */
	uint64_t think_ns;
	uint64_t trouble_ns; /* how long */
	bool has_rogue;
};

struct capture {
	struct hf_addr from, to;
	uint64_t at;
	uint32_t server_life;
	uint32_t host_life;
	uint16_t len;
	uint8_t bytes[MAX_MESSAGE];
};

#define N_CAPTURES 32
#define N_NOTICES  8

/* The peers that the lock manager of the server's host has it watch. */
struct watch {
	char name[48]; /* an address */
	uint8_t priv[16];
	bool is_known; /* it was asked for since the machine was started */
	bool is_on;
	uint32_t off_life;    /* the life of the host when the watch ended */
	int32_t state_before; /* the host's number when the watch began */
	int32_t heard;
	int32_t expected;     /* the number in the next call-back; 0: none is expected */
	uint32_t expected_in; /* the epoch that must make it */
	uint64_t expected_by;
};

struct monitor {
	bool exists;
	struct rng rng;
	struct hf_timer timer;
	struct watch watches[MAX_HOSTS];
	struct watch *about; /* the watch that the call under way is about */
	uint32_t xid;        /* of that call; 0: none */
	uint32_t procedure;
	uint16_t call_len;
	uint8_t call[256];
};

/* FLOOD */
struct flood {
	bool exists;
	struct rng rng;
	struct hf_timer timer;
	bool is_greedy; /* there are hosts that take all that they can get */
	struct rng greedy_rng;
	struct hf_timer greedy_timer;
	struct rng *dice;             /* of the message that is made */
	uint8_t source;               /* the last byte of its source address */
	struct hf_lock_limits limits; /* of the server, for all epochs */
	size_t n_loaded;              /* clients, in this epoch */
	uint32_t most_grants;         /* in flight at one time, in this epoch */
};

/* TLS */

/* A call of the intruder that is to be refused. */
struct intrusion {
	uint32_t xid; /* 0: none */
	uint32_t host;
};

#define N_INTRUSIONS 16

struct tls {
	bool exists;
	struct rng rng;
	uint64_t grace_ns;
	struct hf_export exports[MAX_FILES];
	const char *named[MAX_FILES][MAX_HOSTS]; /* identities of an export */
	struct session sessions[MAX_SESSIONS];
	struct presence presences[N_SLOTS][N_IDENTITIES];
	struct rng intruder_rng;
	struct hf_timer intruder_timer;
	struct host *victim; /* whose address the intruder has; NULL: none */
	struct intrusion intrusions[N_INTRUSIONS];
	uint32_t n_intrusions;
};

/* SEQUENCE */
struct sequence_state {
	uint32_t n_locks;       /* of the host's present life */
	uint32_t n_reserved;    /* ever */
	bool is_late_unknown;   /* the statd gives an old number, and the server may not know that */
	bool is_statd_moved;    /* it was started again alone */
	bool is_number_unknown; /* the server was not told of it since its start, except by a LOCK */
};

/* Which program was told that it has the unit, and when. */
struct taken {
	const struct owned *who;
	uint64_t at;
};

struct world {
	struct sim_options options;
	struct sim_counts *counts;
	struct rng net_rng, disk_rng, plan_rng, server_rng, rogue_rng;
	struct hf_loop outside; /* clock and timers of everything except the server */
	uint64_t now;
	uint64_t digest;
	uint32_t n_steps;
	struct knobs knobs;
	bool has_forger;
	struct server *server; /* that serves; or, while the code of another one runs, that one */
	struct server *acting; /* that serves, or did last */
	struct server nodes[MAX_NODES];
	struct disk disk;
	struct database database;
	struct worker worker;
	struct fates fates;
	struct slow slow;
	struct hf_list conns;
	struct host hosts[MAX_HOSTS];
	uint32_t n_hosts;
	uint32_t n_files;
	struct matching *matching;                 /* of check.c */
	struct taken taken[MAX_FILES][N_UNITS][2]; /* last, by mode */
	struct host *by_slot[N_SLOTS];
	uint32_t n_slots;
	struct hf_addr server_addrs[2];
	uint64_t back_at[MAX_FILES]; /* when a reload last brought back a file that the run had not had */
	bool has_reservations;       /* some host uses them */
	uint32_t next_xid; /* of the rogue and the monitor; each host counts by itself, so numbers may be
			    * equal */
	uint16_t next_port;
	struct fault faults[MAX_FAULTS];
	uint32_t n_faults;
	struct capture captures[N_CAPTURES];
	uint32_t n_captures;
	struct capture notices[N_NOTICES]; /* of restarts: they are few, and the most useful to a forger */
	uint32_t n_notices;
	struct monitor monitor;
	struct flood flood;
	struct tls tls;
	struct sequence_state sequence;
	uint32_t n_trouble; /* steps until the calm */
	bool has_freed;     /* a program was told UNLOCK's GRANTED while the store was away */
	bool is_calm;       /* no more faults */
	uint64_t lease_ns;  /* of a cluster */
	bool has_fence;
	struct server *announced; /* the node that last said that it has the address */
	uint64_t served_at;       /* a node that clients can reach has served */
	uint64_t disturbed_at;    /* no node could */
	struct hf_timer watch_timer;
	bool is_ending;
	uint64_t ending_since;
	bool has_failed;
	char rule[8];
	char what[400];
};

/* WORLD (world.c) */
void world_note(struct world *world, uint64_t a, uint64_t b); /* into the digest */
void world_note_bytes(struct world *world, const void *data, size_t len);
void world_say(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_fail(struct world *world, const char *rule, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void world_timer(struct world *world, struct hf_timer *timer, void (*fn)(struct hf_timer *timer));
void world_step(struct world *world); /* the next event */
void world_run_until(struct world *world, uint64_t until);
static inline bool omits(const struct world *world, uint32_t what)
{
	return (world->options.omit & what) != 0;
}
/* Printing that is not read costs time: */
#define SAY(world, ...)                                \
	do {                                           \
		if ((world)->options.is_verbose)       \
			world_say(world, __VA_ARGS__); \
	} while (0)

/* LOOP (loop.c) */
struct sim_loop *sim_loop_new(struct world *world);
bool sim_loop_has_work(struct world *world); /* is a socket ready? */
void sim_loop_turn(struct world *world);

/* SOCKETS, as loop.c and net.c see them */
enum sock_kind {
	SOCK_LISTENER,
	SOCK_BYTES,
	SOCK_DATAGRAMS,
};

struct sock {
	struct hf_socket socket; /* first */
	struct hf_link link;     /* of server->socks */
	struct hf_link waiting;  /* of a listener's queue */
	struct world *world;
	struct server *server;
	enum sock_kind kind;
	bool is_closed;
	struct hf_addr local;
	struct conn *conn;
	struct hf_list queue; /* LISTENER: socks; DATAGRAMS: packets */
};

struct sock *sock_new(struct server *server, enum sock_kind kind, const struct hf_addr *local);
struct sock *sock_find(struct server *server, enum sock_kind kind, const struct hf_addr *to);
void sock_free(struct sock *sock);

/* NET (net.c) */
struct packet {
	struct hf_link link; /* of a socket's queue */
	struct hf_timer timer;
	struct world *world;
	struct server *server; /* that sent it; NULL: a host did */
	struct hf_addr from, to;
	uint64_t sent_at;
	uint32_t server_life;
	uint16_t len;
	uint8_t bytes[];
};

void net_send(struct world *world, const struct hf_addr *from, const struct hf_addr *to, const void *data,
	      size_t len);
struct host *net_host(struct world *world, const struct hf_addr *addr);
bool net_is_server(const struct world *world, const struct hf_addr *addr);
uint64_t net_delay(struct world *world);

/* STREAMS (stream.c) */
struct chunk {
	struct hf_link link;
	uint64_t sent_at;
	uint32_t len;
	uint8_t bytes[];
};

struct way {
	struct conn *conn;
	struct hf_list chunks;
	struct hf_timer timer; /* runs while there are chunks */
	bool has_end;          /* after them */
	uint32_t tries;
};

#define STREAM_ROOM 16384

struct conn {
	struct hf_link link;
	struct world *world;
	struct host *host;
	uint32_t host_life;
	struct server *server;
	uint32_t machine; /* the server's boot */
	struct hf_addr server_end, client_end;
	struct hf_timer timer; /* while it opens */
	struct way up, down;   /* to the server, to the client */
	struct sock *sock;     /* the server's end, or NULL */
	bool has_client;       /* the client's end is there */
	bool is_open;
	int error; /* the server's end: -errno */
	bool is_ended;
	bool drops_unsent; /* when the server closes it */
	uint32_t tries;
	uint64_t heard_at;           /* when the server's kernel last had something of the client's */
	uint32_t n_asked;            /* how often that kernel has asked the client's without an answer */
	struct hf_timer probe_timer; /* the kernel has asked whether the other end is still there */
	uint32_t in_len, record_len;
	uint32_t tap_ahead;          /* unwritten bytes that were looked at */
	uint8_t in[STREAM_ROOM];     /* arrived at the server */
	uint8_t record[STREAM_ROOM]; /* arrived at the client */
};

struct conn *stream_connect(struct world *world, struct host *host, struct sock *sock,
			    const struct hf_addr *server_end, const struct hf_addr *client_end);
void stream_send(struct conn *conn, bool to_server, const void *data, size_t len);
void stream_close(struct conn *conn, bool by_server);
void stream_probe(struct conn *conn);     /* the server's kernel asks: is the other end there? */
void stream_reset(struct conn *conn);     /* both ends know */
void stream_host_died(struct host *host); /* its ends are lost, and no peer is told */
void stream_server_died(struct world *world, bool is_machine);

/* DISK (disk.c) */
int disk_open(struct hf_store **storep, struct hf_loop *loop, const struct hf_store_options *options);
void disk_init(struct world *world);
void disk_complete(struct world *world); /* inside the server: completes what has ended */
bool disk_has_completed(const struct world *world);
void disk_crash(struct world *world, bool is_machine);
uint32_t disk_count_waiters(const struct world *world);
uint32_t disk_count_promised_waiters(const struct world *world);
bool disk_has_wait_of(const struct disk_view *view, const struct proc *proc, const struct span *span);
bool disk_has_waiter(const struct disk_view *view, const struct hf_lock_view *waiter);
bool disk_has_client(const struct world *world, const char *id);
bool disk_has_client_of(const struct host *host); /* by whatever name */
bool disk_get_state_of(const struct world *world, const char *id,
		       int32_t *statep); /* false: unknown; 0: not proven */
bool disk_has_number(const struct world *world, const char *id, int32_t state); /* proven or not */
/* What the disk has of this owner, by unit, after a crash of the promised kind. */
void disk_read_locks(const struct world *world, const struct disk_view *view, const struct host *host,
		     uint32_t svid, uint8_t has[MAX_FILES][N_UNITS]);
/* Locks and reservations of a host under this name, of programs from before its last restart. */
uint32_t disk_count_older(const struct disk_view *view, const struct host *host, struct hf_bytes name);
const struct disk_view *disk_promised(const struct world *world);
/* Reservations: how often this one is stored; how many there are in all, in files that the server has. */
uint32_t disk_count_reservation(const struct disk_view *view, const struct host *host, uint32_t svid,
				uint8_t file, const struct reservation *reservation);
uint32_t disk_count_reservations(const struct world *world, const struct disk_view *view);

/* Is it in the way of the store of this process that another node has claimed the service? */
bool disk_is_fenced(const struct server *server);
void disk_end_session(struct server *server);                      /* its writes under way end here */
void disk_lose_writes(struct server *server);                      /* with the database */
void disk_lose(struct world *world, const struct disk_view *left); /* NULL: what was not synced */

/* DATABASE (database.c) */
void database_init(struct world *world);
bool database_is_reached(const struct server *server);
uint64_t database_delay(struct world *world);
void database_medium(const struct world *world, char *medium, size_t size);
/* Carries out a step; fills in its answer. */
void database_serve(struct request *request);
void database_go_away(struct world *world, uint64_t lasts);
void database_crash(struct world *world, uint64_t lasts);
void database_promote(struct world *world, uint64_t lasts);
void database_calm(struct world *world);
void database_was_resynced(struct world *world);
/* It has lost something, and the node that serves has not stored it again yet. */
bool database_is_behind(const struct world *world);

/* NODE (node.c): nothing of it happens without a cluster */
void node_init(struct world *world);
void node_free(struct world *world);
void node_begin(struct world *world); /* both processes start */
void node_start(struct server *server);
uint64_t node_clock(const struct server *server);
uint64_t node_lease_end(const struct server *server); /* by the world's clock */
bool node_may_act(const struct server *server);
bool node_is_halted(const struct server *server);
void node_point(struct world *world); /* the process may be halted here */
void node_halt(struct server *server, uint64_t ns, bool is_sleep);
void node_arm_halt(struct server *server, uint64_t ns, uint32_t n_operations);
void node_crash(struct server *server, enum crash_kind kind);
void node_stopped(struct server *server); /* its service has ended in order */
void node_store_taken(struct server *server);
void node_move(struct world *world);
void node_take(struct world *world);
void node_leave(struct server *server);
void node_reconnect(struct server *server); /* to the database */
void node_set_link(struct server *server, bool has_link);
bool node_is_serving(const struct server *server);
struct server *node_standby(struct world *world);
void node_calm(struct world *world);
/* Does this node send? Checks that it may. False: its address is elsewhere. */
bool node_sends(struct server *server);
void node_check_grace_end(struct server *server, const char *reason);
/* The node that has the service's address; NULL: none that is on. */
struct server *node_holder(struct world *world);
/* Runs @fn with this node in the place of the one that serves. */
void node_with(struct server *server, void (*fn)(struct world *world, void *user), void *user);

/* FAILOVER (failover.c) */
void failover_make(struct world *world);
bool failover_act(struct fault *fault); /* false: it is another kind of fault */
const char *failover_name(enum fault_kind kind);
void failover_calm(struct world *world);

/* SLOW (slow.c) */
void slow_init(struct world *world);
uint64_t slow_write(struct world *world);

/* WORKER (worker.c) */
struct hf_nlm_files;
void worker_init(struct world *world);
/* The caller owns @files; *filesp points to it. */
int worker_start(struct world *world, struct hf_nlm_files *files, const struct hf_nlm_files **filesp);
void worker_complete(struct world *world); /* inside the server: completes what is answered */
bool worker_has_answers(const struct world *world);
void worker_finish(struct world *world); /* inside the server: completes everything */
void worker_crash(struct world *world);
void worker_hurry(struct world *world); /* answers all questions now */

/* FATE (fate.c) */
void fate_init(struct world *world);
void fate_stop(struct world *world);
/* The server reads about it: the list has changed, or the kernel reports a file. */
void fate_hear(struct fates *fates);
bool fate_is_unheard(const struct fates *fates, uint8_t file, uint64_t since);
int fate_of(struct world *world, const struct hf_addr *peer, uint8_t file, bool for_writing); /* HF_CHECK_… */
int fate_in_list(struct world *world, const struct hf_addr *peer, uint8_t file); /* of exports; HF_CHECK_… */
void fate_check_granted(struct world *world, const struct host *host, uint32_t svid,
			uint8_t file); /* to a waiter */
bool fate_is_withdrawn(const struct world *world, uint8_t file);
bool fate_refuses(const struct call *call, uint32_t stat); /* can that be the reason for this reply? */
void fate_check_answer(const struct call *call, uint32_t stat);

/* RELOAD (reload.c) */
void reload_server_starts(struct world *world);
bool reload_get_exports(struct world *world, struct hf_recovery_exports *exports); /* false: as files are */
void reload_later(struct world *world); /* the list is another one */
void reload_act(struct world *world);   /* inside the server */
/* Does the run of the server not have this file? Then nothing of it is in its tables. */
bool reload_is_absent(const struct server *server, uint8_t file);
bool reload_may_lack(const struct world *world); /* the store, of what programs have */
bool reload_lacks_files(const struct server *server);
bool reload_is_back_since(const struct world *world, uint8_t file, uint64_t since);
void reload_check_locks(struct world *world, struct proc *proc, uint8_t file);
void reload_check_reservation(struct world *world, struct proc *proc, uint8_t file);

/* SERVER (server.c) */
void server_init(struct world *world);
void server_start(struct world *world);
void server_vanish(struct world *world, bool is_machine); /* its memory and its sockets are lost */
void server_loosen(struct world *world);                  /* programs have to be told anew */
void server_forget_list(struct world *world); /* the list of locks may be incomplete from now on */
void server_inherit(struct server *server, const struct server *from);
void server_turn(struct world *world);
void server_wake(struct server *server); /* there is something for it to do */
void server_tick(struct world *world);   /* one operation: may not return */
void server_crash(struct world *world, enum crash_kind kind);
/* A promise of an earlier epoch that arrives when the time to reclaim is over. */
bool server_is_message_old(const struct server *server, uint64_t sent_at);
void server_arm(struct world *world, enum crash_kind kind, uint32_t n_operations);
void server_stop(struct world *world);
uint64_t server_next(struct server *server); /* when it acts next */
/* Calls @fn as the server's own code. */
void server_do(struct world *world, void (*fn)(struct world *world, void *user), void *user);

/* PLAN (plan.c) */
void plan_make(struct world *world);
void plan_stop(struct world *world); /* no further faults */
void plan_arm(struct fault *fault);
void plan_restart(struct world *world); /* in order */

/* SEQUENCE (sequence.c) */
void sequence_make(struct world *world);
bool sequence_play(struct world *world); /* false: its acts make no sense in this order */
uint64_t sequence_count(const struct sim_options *options);
void sequence_name(const struct sim_options *options, char *text, size_t size);
bool sequence_read(struct sim_options *options, const char *text);

/* HOST (host.c) */
void host_init(struct world *world, uint32_t index);
void host_settle_in(struct host *host); /* its programs and ports, after a boot */
void host_move_to(struct host *host, uint32_t slot);
void host_die(struct host *host, bool moves, uint64_t downtime_ns);
void host_rename(struct host *host);
void host_take_along(struct host *host, enum crash_kind kind, uint32_t n_operations);
void host_is_acknowledged(struct host *host); /* the server says that it knows of this life */
void host_set_cut(struct host *host, bool in, bool out, uint64_t lasts_ns);
bool host_listens(const struct host *host, uint16_t port, bool by_tcp);
/* A message came, by datagram or on @conn. */
void host_message(struct host *host, const struct hf_addr *from, uint16_t port, struct conn *conn,
		  const uint8_t *data, size_t len, uint64_t sent_at);
void host_connected(struct host *host);
void host_disconnected(struct host *host, struct conn *conn);
void host_announce(struct host *host);       /* says that it was restarted */
bool host_is_known(const struct host *host); /* the server has stored it, by its name */
bool host_is_number_stored(const struct host *host);
bool host_get_stored_state(const struct host *host, struct hf_bytes name, int32_t *statep);

/* TALK (talk.c) */
struct call *talk_call(struct host *host, struct proc *proc, enum call_kind kind, const struct span *span,
		       bool blocks);
void talk_granted_res(struct host *host, const uint8_t *cookie, uint32_t cookie_len, uint32_t stat);
void talk_drop(struct call *call);
void talk_resend_all(struct host *host); /* the connection is new */
struct call *talk_find_xid(struct host *host, uint32_t xid);
struct call *talk_find_cookie(struct host *host, uint64_t cookie);
void talk_handle(uint8_t handle[HANDLE_LEN], uint8_t file);
uint64_t span_offset(const struct span *span);
uint64_t span_len(const struct span *span);

/* PROCESS (process.c) */
void proc_init(struct proc *proc, struct host *host, uint32_t number);
void proc_answer(struct proc *proc, struct call *call, uint32_t stat, uint64_t sent_at);
/* A call-back; returns the reply. */
uint32_t proc_granted(struct host *host, uint32_t svid, const struct span *span, uint64_t sent_at);
bool proc_awaits(const struct host *host, uint32_t svid, const struct span *span);
void proc_nudge(struct proc *proc); /* it may go on */
void proc_go_on(struct proc *proc); /* after a while */
void proc_pause(struct proc *proc, enum phase phase, uint64_t ns);
void proc_lock(struct proc *proc, const struct span *span, bool blocks);
void proc_unlock(struct proc *proc, const struct span *span);
void proc_cancel(struct proc *proc);
bool proc_is_at_rest(const struct proc *proc);

/* HAVING (having.c) */
void proc_take(struct proc *proc, const struct span *span, uint64_t sent_at); /* it is told that it has it */
void proc_lose(struct proc *proc); /* all its locks, and it does not know of that */
void proc_give_up(struct proc *proc, const struct span *span);
void proc_downgrade(struct proc *proc, const struct span *span); /* it is about to ask for a lower mode */
void proc_raise_again(struct proc *proc);                        /* it was refused */
void proc_had(struct proc *proc, const struct span *span, uint64_t sent_at); /* it does not know that */
void proc_be_content(struct proc *proc); /* it has reclaimed what it was about to downgrade */
bool proc_has_anything(const struct proc *proc);
void proc_reclaims(const struct proc *proc, const struct span *span,
		   uint64_t sent_at); /* and may, it is told */
void proc_set_freed(struct proc *proc, const struct span *span, bool is_freed);

/* THREAD (thread.c) */
void thread_init(struct proc *proc, uint32_t number);
bool thread_is_second(const struct proc *proc);     /* what it has is the first one's */
struct proc *thread_other(const struct proc *proc); /* NULL: there is none */
/* Does a thread of this owner ask for @unit in a lower mode than @span, or have it, behind one that does? */
bool thread_asks_for_less(const struct host *host, uint32_t svid, const struct span *span, int unit);
bool thread_may_lock(const struct proc *proc);        /* the range that it wants */
bool thread_may_go_on(const struct proc *proc);       /* with that range: ask again, or cancel it */
bool thread_wants_something(const struct proc *proc); /* it, or the other one */
bool thread_may_unlock(const struct proc *proc, const struct span *span);
void thread_choose(const struct proc *proc,
		   struct span *span); /* something to do with what the other one wants */

/* PIPE (pipe.c) */
void pipe_init(struct host *host);
void pipe_proc_init(struct proc *proc);
void pipe_stop(struct proc *proc);
void pipe_lock_sent(struct proc *proc);
void pipe_sent_again(struct call *call);
bool pipe_may_cross(const struct proc *other); /* may its thread ask for the same at the same time? */
void pipe_taken(struct proc *proc, const struct span *span);
uint8_t pipe_mode(const struct proc *proc, const struct span *span, int unit);
void pipe_settle(struct proc *proc, uint32_t n_sent);
bool pipe_has_less(const struct proc *proc, uint8_t mode, int unit);
bool pipe_joins_segment(struct host *host);

/* PART (part.c) */
void part_init(struct host *host);
void part_proc_init(struct proc *proc);
bool part_act(struct proc *proc); /* false: not now */
void part_narrow(struct rng *rng, struct span *span);

/* ORDINARY PORTS (ordinary.c) */
void ordinary_init(struct host *host);

/* PATIENCE (patience.c) */
void patience_init(struct host *host);
void patience_proc_init(struct proc *proc);
void patience_stop(struct proc *proc);
void patience_lock_sent(struct proc *proc);
bool patience_is_unheard(const struct host *host); /* is a call under way whose reply no program waits for? */

/* SHARE (reservation.c) */
bool reservation_act(struct proc *proc); /* false: not now */
void reservation_open(struct proc *proc, uint8_t file, uint8_t access, uint8_t deny);
bool reservation_finish(struct proc *proc); /* closes its open files; false: there are none */
void reservation_close_again(struct proc *proc);
void reservation_answer(struct proc *proc, struct call *call, uint32_t stat, uint64_t sent_at);
void reservation_loosen(struct proc *proc, bool was_over); /* the server is dead */
void reservation_forget(struct proc *proc);
bool reservation_reclaim(struct host *host);       /* the next reservation; false: there is none */
void reservation_unheard(const struct call *call); /* a reclaim is given up, and will be repeated */
void reservation_check(struct world *world, bool may_forfeit);
void reservation_check_stored(struct world *world);
void reservation_check_closed(struct world *world, const struct call *call);
void reservation_check_refused(struct world *world, const struct call *call);
void reservation_check_told(struct world *world, struct proc *proc, const struct call *call);

/* RECLAIM (reclaim.c) */
void reclaim_server_starts(struct host *host);
void reclaim_begin(struct host *host, int32_t state);
void reclaim_answer(struct host *host, struct call *call, uint32_t stat, uint64_t sent_at);
void reclaim_init(struct host *host);
void reclaim_go_on(struct host *host, uint64_t delay_ns);
bool reclaim_retries(const struct call *call, uint32_t stat); /* it is repeated */
bool reclaim_has_lost_place(
	const struct host *host); /* its registration was lost, and another has its place */

/* MONITOR (monitor.c) */
void monitor_init(struct world *world);
bool monitor_is(const struct hf_addr *addr);
void monitor_message(struct world *world, const struct hf_addr *from, const uint8_t *data, size_t len);
void monitor_tap(struct world *world, const uint8_t *data, size_t len);
void monitor_expect(const struct host *host);
void monitor_check(struct world *world);
void monitor_died(struct world *world);
void monitor_moved(const struct host *host);

/* NAT (nat.c) */
bool nat_join(struct host *host); /* behind the host before it; false: it has an address of its own */
bool nat_unlocks_all(
	struct host *host); /* a program of it that ends also unlocks files that it never locked */
/* The host of this registration; NULL: it does not exist now. */
struct host *nat_owner(struct world *world, const struct hf_addr *addr, const char *name);
bool nat_has_oh(const struct host *host, uint32_t svid, struct hf_bytes oh); /* is it one of its own? */

/* ROGUE (rogue.c) */
void rogue_capture(struct world *world, const struct packet *packet);
void rogue_act(struct world *world, uint32_t n);
struct hf_xdr_out;
uint32_t rogue_next_xid(const struct world *world); /* of the next call that it makes up */
void rogue_put_header(struct hf_xdr_out *out, struct world *world, uint32_t procedure); /* of NLM 4 */
void rogue_put_lock(struct hf_xdr_out *out, const struct host *victim, uint8_t file, uint32_t svid);
/* In the name of @victim, by datagram: that it was restarted; a LOCK with this state. @port: 0 for a reserved
 * one. @number is that of the LOCK's cookie. */
void rogue_forge_restart(struct world *world, const struct host *victim, uint16_t port, bool is_notice,
			 const char *name, int32_t state);
void rogue_forge_number(struct world *world, struct host *victim, uint16_t port, uint64_t number,
			int32_t state);
bool rogue_can_be_denied(const struct world *world, const struct host *victim); /* by the victim's host */
bool rogue_is_false_number_stored(const struct host *host);
bool rogue_is_forger(
	struct world *world); /* forges senders, too: only if every host that is asked can answer */

/* SESSION (session.c) */
void session_init(struct world *world);
void session_begin(struct world *world, uint32_t slot, uint8_t identity, struct session **sessionp);
void session_end(struct session *session);
void session_end_all(struct world *world); /* inside the server, which stops */
void session_server_died(struct world *world);
void session_host_died(struct host *host);
void session_host_booted(struct host *host);
void session_calm(struct world *world);
void session_renew(struct host *host);                       /* its user mounts anew */
const char *session_name(uint8_t identity, uint32_t number); /* of its certificate; NULL: it has no more */

/* IDENTITY (identity.c) */
void identity_init(struct world *world);
enum hf_transport identity_demand(const struct world *world, uint8_t file);
bool identity_demands_any(void *user); /* the world */
struct hf_export *identity_export(struct world *world, uint8_t file);
void identity_server_starts(struct world *world);
bool identity_may_use(const struct host *host, uint8_t file); /* while it is connected */
/* Has the host had its connection since @since? */
bool identity_is_steady(const struct host *host, uint64_t since);
/* Could a call be served at some time since @since, because of a connection of its own or the server's start?
 */
bool identity_could_be_served(const struct host *host, uint8_t file, uint64_t since);
bool identity_may_refuse(const struct call *call);
bool identity_refuses(const struct call *call, uint32_t stat); /* can that be the reason for this reply? */
bool identity_must_wait(const struct host *host); /* it was restarted, and has to connect first */
void identity_look_at_answer(const struct call *call, uint32_t stat);
void identity_look_at_table(struct world *world);
void identity_check_cleanup(struct world *world, const struct hf_recovery_event *event);

/* INTRUDER (intruder.c) */
void intruder_init(struct world *world);
void intruder_calm(struct world *world);
void intruder_server_died(struct world *world);
void intruder_tap(struct world *world, const uint8_t *data, size_t len);

/* FLOOD (flood.c) */
void flood_init(struct world *world);
void flood_limit(const struct world *world, struct hf_lock_limits *limits);
void flood_server_started(struct world *world);
void flood_check(struct world *world);
void flood_note_granted(struct world *world);
bool flood_is_greedy(const struct world *world, const struct hf_addr *addr); /* one of its hosts is there */
void flood_message(struct world *world, const struct hf_addr *from, const struct hf_addr *to,
		   const uint8_t *data, size_t len);

/* TAP (tap.c) */
void tap_datagram(struct world *world, const struct hf_addr *to, const uint8_t *data, size_t len);
void tap_stream(struct conn *conn, const uint8_t *data, size_t len);

/* CHECK (check.c) */
void check_turn(struct world *world); /* after a turn of the server */
void check_started(struct world *world);
void check_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event);
struct host *check_host_of(struct world *world, struct hf_lock_client *locking); /* NULL: no host */
/* What the server has for an owner, by unit. */
void check_read_table(struct world *world, const struct host *host, uint32_t svid,
		      uint8_t has[MAX_FILES][N_UNITS]);
bool span_of_range(struct span *span, struct hf_range range);

/* ORDER (order.c) */
void order_note_granted(struct world *world, const struct hf_lock_view *waiter);
void order_note_waiters(struct world *world);
void order_note_restored(struct world *world); /* the waiters of the run before */
/* The program is told that it waits: the next run must know of it. */
void order_check_stored(const struct call *call);
void order_check_refused(const struct call *call); /* for good */
/* A LOCK of @proc is served. */
void order_note_locked(struct world *world, struct proc *proc, const struct hf_lock_view *lock);
void order_check(struct world *world);
bool order_waits(const struct call *call);
bool order_is_involved(struct world *world, const struct proc *proc, const struct span *span);
void order_check_called_back(struct proc *proc);      /* it asks again, and has the lock */
void order_check_unlocked(const struct call *call);   /* before the program is told so */
void order_check_downgraded(const struct call *call); /* the same */
void order_check_cancelled(const struct proc *proc, const struct span *span); /* it no longer waits */

/* REST (rest.c) */
void rest_run(struct world *world);

/* RUN (run.c) */
void sim_run(const struct sim_options *options, struct sim_result *result);
