/*
 * From the start of the daemon to its readiness, with many locks stored, beside
 * reading the same records through the store, which opens its file, checks every
 * page and record of it and decodes them, and beside walking over them in LMDB,
 * with the file in memory, and nothing else.
 *
 *	restart PATH/holdfastd [--beside OTHER/holdfastd] [LOCKS [FOLDER]]
 *
 * The locks are taken over the wire, by 1,000 clients with 10 processes each in 10,000 files, and the
 * daemon is killed with SIGKILL each time. The best of some rounds counts, since
 * others use the machine, too; CPU seconds are those of the daemon up to then.
 *
 * With --beside, another build starts in the same rounds, in turn the first and the second, with a store of
 * its own and the same locks. The medians of both count then. A ratio to the other build is the median of the
 * ratios within a round: the speed of a machine changes less there. Prints JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "loop/loop.h"
#include "plain.h"
#include "store/store.h"

#define NLM       100021
#define LOCK      2
#define N_LOCKS   1000000
#define N_CLIENTS 1000
#define N_FILES   10000
#define N_OWNERS  10 /* of a client */
#define N_ROUNDS  9
#define AT_ONCE   256
#define REPLY     40 /* record mark, header, a cookie of 4 bytes, status */
#define GRANTED   0

struct bench {
	const char *program;
	char folder[256];
	pid_t pid;
	uint16_t port;
};

static double clock_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double now(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

/* Of this process: all its threads. */
static double cpu_now(void)
{
	return clock_of(CLOCK_PROCESS_CPUTIME_ID);
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static void must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "restart: %s: %s\n", what, strerror(-r));
	exit(1);
}

/* The daemon */

static void run_daemon(const struct bench *bench)
{
	char state[300];

	snprintf(state, sizeof(state), "server.state_dir=%s", bench->folder);
	execl(bench->program, bench->program, "--set", state, "--set", "server.port=0", "--set",
	      "server.portmap=off", "--set", "server.listen=[127.0.0.1]", "--set", "api.listen=", "--set",
	      "log.level=error", "--set", "recovery.max_clients=100000", (char *)NULL);
	_exit(127);
}

static bool is_serving(struct bench *bench)
{
	char path[300], text[256];
	unsigned int port, pid;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/ports.json", bench->folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "{\"rpc\":%u", &port) != 1 || !strstr(text, "\"pid\":") ||
	    sscanf(strstr(text, "\"pid\":"), "\"pid\":%u", &pid) != 1 || (pid_t)pid != bench->pid)
		return false;
	bench->port = (uint16_t)port;
	return true;
}

struct reading {
	double wall, cpu;
};

static double start_daemon(struct bench *bench)
{
	const struct timespec gap = { .tv_nsec = 200000 };
	double began = now();

	bench->pid = fork();
	must(bench->pid < 0 ? -errno : 0, "fork");
	if (bench->pid == 0)
		run_daemon(bench);
	while (!is_serving(bench)) {
		must(waitpid(bench->pid, NULL, WNOHANG) ? -ECHILD : 0, "the daemon has ended");
		must(now() - began > 120 ? -ETIMEDOUT : 0, "the daemon does not start");
		nanosleep(&gap, NULL);
	}
	return now() - began;
}

static void kill_daemon(struct bench *bench)
{
	kill(bench->pid, SIGKILL);
	waitpid(bench->pid, NULL, 0);
}

/* Locks */

static size_t put_u32(uint8_t *out, size_t at, uint32_t value)
{
	value = htonl(value);
	memcpy(out + at, &value, 4);
	return at + 4;
}

static size_t put_opaque(uint8_t *out, size_t at, const void *data, uint32_t len)
{
	at = put_u32(out, at, len);
	memset(out + at, 0, (len + 3) & ~3u);
	memcpy(out + at, data, len);
	return at + ((len + 3) & ~3u);
}

static size_t put_lock(uint8_t *out, uint32_t i)
{
	uint8_t handle[32] = "a file handle of 32 bytes";
	uint32_t client = i % N_CLIENTS, file = i % N_FILES, svid = i / N_FILES % N_OWNERS;
	char name[32], oh[48];
	size_t at = 4;

	snprintf(name, sizeof(name), "client%u", client);
	snprintf(oh, sizeof(oh), "%u@client%u", svid, client);
	memcpy(handle + 28, &file, 4);
	at += load_put_header(out + at, NLM, 4, LOCK);
	put_u32(out, 4, i);
	at = put_opaque(out, at, "cook", 4);
	at = put_u32(out, at, 0); /* block */
	at = put_u32(out, at, 1); /* exclusive */
	at = put_opaque(out, at, name, (uint32_t)strlen(name));
	at = put_opaque(out, at, handle, sizeof(handle));
	at = put_opaque(out, at, oh, (uint32_t)strlen(oh));
	at = put_u32(out, at, svid);
	at = put_u32(out, at, 0);
	at = put_u32(out, at, i / N_FILES * 8192);
	at = put_u32(out, at, 0);
	at = put_u32(out, at, 4096);
	at = put_u32(out, at, 0); /* reclaim */
	at = put_u32(out, at, 3); /* state */
	put_u32(out, 0, 0x80000000u | (uint32_t)(at - 4));
	return at;
}

static int connect_to(const struct bench *bench)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(bench->port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		must(-errno, "connect");
	return fd;
}

static void take_locks(const struct bench *bench, uint32_t n)
{
	static uint8_t out[AT_ONCE * 512], in[AT_ONCE * REPLY];
	int fd = connect_to(bench);

	for (uint32_t i = 0; i < n;) {
		size_t len = 0, got = 0;
		uint32_t k;

		for (k = 0; k < AT_ONCE && i < n; k++)
			len += put_lock(out + len, i++);
		for (size_t at = 0; at < len;) {
			ssize_t w = write(fd, out + at, len - at);

			must(w < 0 ? -errno : 0, "write");
			at += (size_t)w;
		}
		while (got < k * REPLY) {
			ssize_t r = read(fd, in + got, k * REPLY - got);

			must(r <= 0 ? -EPIPE : 0, "read");
			got += (size_t)r;
		}
		for (uint32_t j = 0; j < k; j++)
			must(in[(j + 1) * REPLY - 1] == GRANTED ? 0 : -ENOLCK, "a lock was refused");
	}
	close(fd);
}

/* Reading */

static void on_ticket(void *user, enum hf_store_kind kind, uint64_t ticket)
{
}

static void on_failed(void *user, uint64_t first_lost)
{
}

static void on_event(void *user)
{
}

static int count_lock(void *user, const struct hf_store_lock *lock)
{
	++*(uint64_t *)user;
	return 0;
}

static struct reading read_by_store(const struct bench *bench)
{
	static const struct hf_store_events events = {
		.on_reached = on_ticket,
		.on_failed = on_failed,
		.on_resync = on_event,
		.on_recovered = on_event,
	};
	struct hf_store_options options = {
		.durability = HF_STORE_PROCESS,
		.path = bench->folder,
		.server = "bench",
		.events = &events,
	};
	struct reading reading = { .wall = now(), .cpu = cpu_now() };
	struct hf_loop *loop = NULL;
	struct hf_store *store = NULL;
	uint64_t n = 0;

	must(hf_loop_new(&loop), "loop");
	must(hf_store_open_lmdb(&store, loop, &options), "open");
	must(hf_store_load_locks(store, count_lock, &n), "load");
	reading = (struct reading){ .wall = now() - reading.wall, .cpu = cpu_now() - reading.cpu };
	hf_store_free(store);
	hf_loop_free(loop);
	return reading;
}

/* In a process of its own, as the daemon is: memory that was not used before is part of the price. */
static struct reading read_afresh(const struct bench *bench)
{
	struct reading reading;
	int ends[2];
	pid_t pid;

	must(pipe(ends) < 0 ? -errno : 0, "pipe");
	pid = fork();
	must(pid < 0 ? -errno : 0, "fork");
	if (pid == 0) {
		reading = read_by_store(bench);
		_exit(write(ends[1], &reading, sizeof(reading)) == sizeof(reading) ? 0 : 1);
	}
	close(ends[1]);
	must(read(ends[0], &reading, sizeof(reading)) == sizeof(reading) ? 0 : -EPIPE, "reading");
	close(ends[0]);
	waitpid(pid, NULL, 0);
	return reading;
}

/* Rounds */

static struct reading restart(struct bench *bench)
{
	struct reading reading;

	reading.wall = start_daemon(bench);
	reading.cpu = load_cpu(bench->pid);
	kill_daemon(bench);
	return reading;
}

static void fill(struct bench *bench, const char *program, const char *folder, uint32_t n_locks)
{
	bench->program = program;
	snprintf(bench->folder, sizeof(bench->folder), "%s/hf-restart-XXXXXX", folder);
	must(mkdtemp(bench->folder) ? 0 : -errno, "mkdtemp");
	start_daemon(bench);
	take_locks(bench, n_locks);
	kill_daemon(bench);
	restart(bench); /* what was in the journal is folded now */
}

static void restart_in_turn(struct bench benches[2], int round, struct reading *oursp, struct reading *otherp)
{
	bool is_first = round % 2 == 0;

	if (!is_first)
		*otherp = restart(&benches[1]);
	*oursp = restart(&benches[0]);
	if (is_first)
		*otherp = restart(&benches[1]);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double values[N_ROUNDS])
{
	double sorted[N_ROUNDS];

	memcpy(sorted, values, sizeof(sorted));
	qsort(sorted, N_ROUNDS, sizeof(*sorted), by_value);
	return sorted[N_ROUNDS / 2];
}

static void print_beside(const struct reading ours[N_ROUNDS], const struct reading other[N_ROUNDS])
{
	double columns[6][N_ROUNDS];

	for (int i = 0; i < N_ROUNDS; i++) {
		columns[0][i] = ours[i].wall;
		columns[1][i] = ours[i].cpu;
		columns[2][i] = other[i].wall;
		columns[3][i] = other[i].cpu;
		columns[4][i] = ours[i].wall / other[i].wall;
		columns[5][i] = ours[i].cpu / other[i].cpu;
	}
	printf(",\"median_serving_s\":%.3f,\"median_serving_cpu_s\":%.3f,\"other_median_serving_s\":%.3f,"
	       "\"other_median_serving_cpu_s\":%.3f,\"other_x\":%.3f,\"other_cpu_x\":%.3f",
	       median(columns[0]), median(columns[1]), median(columns[2]), median(columns[3]),
	       median(columns[4]), median(columns[5]));
}

static int usage(void)
{
	fprintf(stderr, "usage: restart PATH/holdfastd [--beside OTHER/holdfastd] [LOCKS [FOLDER]]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static struct bench benches[2];
	struct reading ours[N_ROUNDS], other[N_ROUNDS], reading;
	double serving = 1e9, cpu = 1e9, store = 1e9, store_cpu = 1e9, plain = 1e9;
	bool has_other = argc > 3 && strcmp(argv[2], "--beside") == 0;
	char **rest = argv + (has_other ? 4 : 2);
	int n_rest = argc - (has_other ? 4 : 2);
	uint32_t n_locks = n_rest > 0 ? (uint32_t)strtoul(rest[0], NULL, 10) : N_LOCKS;
	const char *folder = n_rest > 1 ? rest[1] : "/tmp";
	uint64_t n_read = 0;

	if (argc < 2 || n_rest > 2 || !n_locks)
		return usage();
	fill(&benches[0], argv[1], folder, n_locks);
	if (has_other)
		fill(&benches[1], argv[3], folder, n_locks);
	for (int i = 0; i < N_ROUNDS; i++) {
		plain = least(plain, plain_reading(benches[0].folder, &n_read));
		reading = read_afresh(&benches[0]);
		store = least(store, reading.wall);
		store_cpu = least(store_cpu, reading.cpu);
		if (has_other)
			restart_in_turn(benches, i, &ours[i], &other[i]);
		else
			ours[i] = restart(&benches[0]);
		serving = least(serving, ours[i].wall);
		cpu = least(cpu, ours[i].cpu);
	}
	printf("{\"bench\":\"restart\",\"locks\":%u,\"read\":%llu,\"serving_s\":%.3f,\"serving_cpu_s\":%.3f,"
	       "\"store_reading_s\":%.3f,\"store_reading_cpu_s\":%.3f,\"x\":%.2f,\"cpu_x\":%.2f,"
	       "\"plain_walk_s\":%.3f,\"plain_x\":%.2f",
	       n_locks, (unsigned long long)n_read, serving, cpu, store, store_cpu, serving / store,
	       cpu / store_cpu, plain, serving / plain);
	if (has_other)
		print_beside(ours, other);
	printf("}\n");
	fflush(stdout);
	if (n_rest <= 1)
		execlp("rm", "rm", "-rf", benches[0].folder, has_other ? benches[1].folder : (char *)NULL,
		       (char *)NULL);
	return 0;
}
