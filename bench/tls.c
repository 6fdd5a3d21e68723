/*
 * NULL, LOCK, READ and WRITE over one connection, in the clear and inside TLS, in the same run; and what one
 * core encrypts of the same records with AES-GCM, which is the limit.
 *
 *	tls PATH/holdfastd [SECONDS]
 *
 * One connection has some calls under way. The client encrypts, too, on another core if there is one. So
 * the processor time of the server for a call says more than the rate.
 */
#include <arpa/inet.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/ssl.h>

#include "../tests/unit/tls/made.h"
#include "files_wire.h"
#include "load.h"
#include "nlm_call.h"

#define NFS       100003
#define MOUNT     100005
#define SIZE      65536
#define FILE_SIZE (64u << 20)
#define DEPTH     16
#define RECORD    16384
#define N_ROUNDS  8

struct connection {
	int fd;
	SSL *ssl; /* NULL: in the clear */
};

struct bench {
	uint16_t port;
	pid_t pid;
	SSL_CTX *ctx;
	struct handle file;
	struct peer_handle locked; /* the same file */
	struct nlm_call lock, unlock;
	uint8_t *data; /* SIZE bytes */
	uint8_t *reply;
};

struct outcome {
	uint64_t n;
	double seconds;
	double cpu; /* of the server */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Bytes */

static void give(struct connection *c, const void *data, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };

	if (!c->ssl)
		send_all(c->fd, &iov, 1);
	else if (SSL_write(c->ssl, data, (int)len) != (int)len)
		die("SSL_write");
}

static void take(struct connection *c, uint8_t *data, size_t len)
{
	if (!c->ssl) {
		receive_exactly(c->fd, data, len);
		return;
	}
	while (len) {
		int n = SSL_read(c->ssl, data, (int)len);

		if (n <= 0)
			die("SSL_read");
		data += n;
		len -= (size_t)n;
	}
}

static uint32_t take_reply(struct bench *bench, struct connection *c)
{
	uint8_t mark[4];
	uint32_t len;

	take(c, mark, 4);
	len = get32(mark) & 0x7fffffff;
	if (len > BENCH_BUFFER)
		die("reply");
	take(c, bench->reply, len);
	if (len < 24 || get32(bench->reply + 8) != 0 || get32(bench->reply + 20) != 0)
		die("a call was refused");
	return len;
}

/* @end: where the call that begins at @call, with room for its mark, ends. */
static void give_call(struct connection *c, uint8_t *call, uint8_t *end)
{
	put32(call, 0x80000000u | (uint32_t)(end - call - 4));
	give(c, call, (size_t)(end - call));
}

/* Connections */

static void ask_for_tls(struct bench *bench, struct connection *c)
{
	static const char answer[] = "STARTTLS";
	uint8_t call[64], got[36], *p = put32(put32(put32(call + 4, 1), 0), 2);

	p = put32(put32(put32(p, NFS), 3), 0);
	p = put32(put32(put32(put32(p, 7), 0), 0), 0); /* AUTH_TLS; no verifier */
	give_call(c, call, p);
	receive_exactly(c->fd, got, sizeof(got));
	if (memcmp(got + 24, answer, 8) != 0)
		die("no STARTTLS");
	c->ssl = SSL_new(bench->ctx);
	if (!c->ssl || !SSL_set_fd(c->ssl, c->fd) || SSL_connect(c->ssl) != 1)
		die("handshake");
}

static struct connection connect_to(struct bench *bench, bool with_tls)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(bench->port) };
	struct connection c = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
	int one = 1;

	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	if (c.fd < 0 || connect(c.fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		die("connect");
	setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (with_tls)
		ask_for_tls(bench, &c);
	return c;
}

static void hang_up(struct connection *c)
{
	SSL_free(c->ssl);
	close(c->fd);
}

/* Workloads */

static size_t make_null(struct bench *bench, uint8_t *call, uint64_t n)
{
	return (size_t)(put_call(call, (uint32_t)n, NFS, 3, 0) - call);
}

static size_t make_read(struct bench *bench, uint8_t *call, uint64_t n)
{
	uint8_t *p = put_handle(put_call(call, (uint32_t)n, NFS, 3, 6), &bench->file);

	return (size_t)(put32(put64(p, n * SIZE % FILE_SIZE), SIZE) - call);
}

static size_t make_write(struct bench *bench, uint8_t *call, uint64_t n)
{
	uint8_t *p = put_handle(put_call(call, (uint32_t)n, NFS, 3, 7), &bench->file);

	p = put32(put32(put64(p, n * SIZE % FILE_SIZE), SIZE), 0); /* unstable */
	return (size_t)(put_bytes(p, bench->data, SIZE) - call);
}

static size_t make_lock(struct bench *bench, uint8_t *call, uint64_t n)
{
	const struct load_message *message = nlm_call_fill(n & 1 ? &bench->unlock : &bench->lock,
							   &bench->locked, 1, (uint32_t)(n / 2 % 1000) * 16);

	memcpy(call + 4, message->data, message->len);
	put32(call + 4, (uint32_t)n);
	return message->len + 4;
}

static const struct workload {
	const char *name;
	size_t (*make)(struct bench *bench, uint8_t *call, uint64_t n);
	size_t bytes;
} workloads[] = {
	{ "NULL", make_null, 0 },
	{ "LOCK", make_lock, 0 },
	{ "READ", make_read, SIZE },
	{ "WRITE", make_write, SIZE },
};

static void run(struct bench *bench, const struct workload *w, bool with_tls, double seconds,
		struct outcome *outcome)
{
	static uint8_t call[SIZE + 1024];
	struct connection c = connect_to(bench, with_tls);
	double begun = now(), cpu = load_cpu(bench->pid);
	uint64_t n_sent = 0, n_done = 0;

	while (now() - begun < seconds || n_done < n_sent) {
		while (n_sent < n_done + DEPTH && now() - begun < seconds) {
			size_t len = w->make(bench, call, n_sent++);

			give_call(&c, call, call + len);
		}
		for (int i = 0; i < DEPTH / 2 && n_done < n_sent; i++, n_done++)
			take_reply(bench, &c);
	}
	outcome->n += n_done;
	outcome->seconds += now() - begun;
	outcome->cpu += load_cpu(bench->pid) - cpu;
	hang_up(&c);
}

/* The limit: bytes a second that a core encrypts in records. */
static double measure_cipher(const EVP_CIPHER *cipher, double seconds)
{
	static uint8_t in[RECORD], out[RECORD + 32];
	uint8_t key[32] = { 1 }, iv[12] = { 2 }, tag[16];
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint64_t n = 0;
	clock_t begun = clock();
	double used;
	int len;

	if (!ctx || !EVP_EncryptInit_ex(ctx, cipher, NULL, key, iv))
		die("cipher");
	do {
		for (int i = 0; i < 100; i++, n++) {
			iv[0]++;
			EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, iv);
			EVP_EncryptUpdate(ctx, out, &len, in, sizeof(in));
			EVP_EncryptFinal_ex(ctx, out + len, &len);
			EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, sizeof(tag), tag);
		}
		used = (double)(clock() - begun) / CLOCKS_PER_SEC;
	} while (used < seconds);
	EVP_CIPHER_CTX_free(ctx);
	return (double)n * RECORD / used;
}

/* Preparing */

static void find_file(struct bench *bench)
{
	struct connection c = connect_to(bench, false);
	struct handle root;
	uint8_t call[512];

	give_call(&c, call, put_bytes(put_call(call, 1, MOUNT, 3, 1), "/bench", 6));
	take_reply(bench, &c);
	if (get32(bench->reply + 24) != 0)
		die("MNT");
	root = get_handle(bench->reply + 28);
	give_call(&c, call, put_bytes(put_handle(put_call(call, 2, NFS, 3, 3), &root), "file", 4));
	take_reply(bench, &c);
	if (get32(bench->reply + 24) != 0)
		die("LOOKUP");
	bench->file = get_handle(bench->reply + 28);
	hang_up(&c);
}

static void make_file(const char *path, const uint8_t *data)
{
	FILE *out = fopen(path, "w");

	for (size_t i = 0; out && i < FILE_SIZE / SIZE; i++)
		if (fwrite(data, SIZE, 1, out) != 1)
			die(path);
	if (!out || fclose(out))
		die(path);
}

static void print(const struct workload *w, const char *transport, const struct outcome *o, double limit)
{
	printf("  {\"call\":\"%s\",\"transport\":\"%s\",\"calls_per_second\":%.0f,\"server_us\":%.2f",
	       w->name, transport, (double)o->n / o->seconds, o->cpu * 1e6 / (double)o->n);
	if (w->bytes)
		printf(",\"mb_per_second\":%.0f,\"mb_per_server_second\":%.0f,\"of_cipher\":%.2f",
		       (double)(o->n * w->bytes) / o->seconds / 1e6, (double)(o->n * w->bytes) / o->cpu / 1e6,
		       (double)(o->n * w->bytes) / o->cpu / limit);
	printf("}");
}

int main(int argc, char **argv)
{
	char folder[] = "/dev/shm/hf-bench-tls-XXXXXX", file[64], certificate[64], key[64];
	char export[128], set_certificate[128], set_key[128];
	const char *settings[] = { export,
				   set_certificate,
				   set_key,
				   "store.backend=memory",
				   "recovery.grace=never",
				   "log.level=warn",
				   NULL };
	double seconds = argc > 2 ? atof(argv[2]) : 2, limit;
	struct load_daemon *daemon;
	struct bench bench = { 0 };
	struct made made;

	if (argc < 2 || !mkdtemp(folder))
		die("usage: tls PATH/holdfastd [SECONDS]");
	bench.data = malloc(SIZE);
	bench.reply = malloc(BENCH_BUFFER);
	for (size_t i = 0; i < SIZE; i++)
		bench.data[i] = (uint8_t)(i * 31 + i / 257);
	snprintf(file, sizeof(file), "%s/file", folder);
	snprintf(certificate, sizeof(certificate), "%s.pem", folder);
	snprintf(key, sizeof(key), "%s.key", folder);
	snprintf(export, sizeof(export), "--export=%s:/bench", folder);
	snprintf(set_certificate, sizeof(set_certificate), "tls.certificate=%s", certificate);
	snprintf(set_key, sizeof(set_key), "tls.key=%s", key);
	made = make_certificate("bench", NULL, 30, NULL);
	write_certificate(&made, certificate);
	write_key(&made, key);
	make_file(file, bench.data);
	chmod(folder, 0777);
	chmod(file, 0666);
	bench.ctx = SSL_CTX_new(TLS_client_method());
	if (load_daemon_start(&daemon, argv[1], settings, &bench.port) < 0)
		die("holdfastd");
	bench.pid = load_daemon_pid(daemon);
	find_file(&bench);
	bench.locked.len = bench.file.len;
	memcpy(bench.locked.data, bench.file.bytes, bench.file.len);
	nlm_call_make(&bench.lock, NLM_LOCK, &bench.locked, 16);
	nlm_call_make(&bench.unlock, NLM_UNLOCK, &bench.locked, 16);
	limit = measure_cipher(EVP_aes_256_gcm(), 0.5);
	printf("{\"aes_256_gcm_mb_per_second\":%.0f,\"rows\":[\n", limit / 1e6);
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		struct outcome outcomes[2] = { 0 };

		for (int round = 0; round < N_ROUNDS; round++)
			for (int with_tls = 0; with_tls < 2; with_tls++)
				run(&bench, &workloads[i], with_tls, seconds / N_ROUNDS, &outcomes[with_tls]);
		print(&workloads[i], "tcp", &outcomes[0], limit);
		printf(",\n");
		print(&workloads[i], "tls", &outcomes[1], limit);
		printf("%s\n", i + 1 < sizeof(workloads) / sizeof(workloads[0]) ? "," : "");
		fflush(stdout);
	}
	printf("]}\n");
	load_daemon_stop(daemon);
	unlink(file);
	unlink(certificate);
	unlink(key);
	rmdir(folder);
	SSL_CTX_free(bench.ctx);
	made_free(&made);
	free(bench.data);
	free(bench.reply);
	return 0;
}
