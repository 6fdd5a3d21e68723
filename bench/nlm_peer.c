#include "nlm_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define NFS_PORT   12049
#define MOUNT_PORT 12050
#define NLM_PORT   12051
#define N_TRIES    600 /* of 50 ms: how long everything may take to come up */
#define REPLY_HEAD 24

enum {
	RPCBIND,
	STATD,
	GANESHA,
	N_PROGRAMS
};

struct peer {
	char dir[64];
	pid_t pids[N_PROGRAMS];
};

/* Namespaces */

static int loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r = fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return r;
}

int peer_enter_namespaces(void)
{
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	return loopback_up();
}

/* What rpcbind, statd and ganesha store on disk is the bench's alone, and empty. */
static int cover_directories(void)
{
	if (mount("none", "/run", "tmpfs", 0, NULL) < 0 || mkdir("/run/ganesha", 0755) < 0)
		return -errno;
	if (mount("none", "/var/lib/nfs", "tmpfs", 0, NULL) < 0)
		return -errno;
	if (mkdir("/var/lib/nfs/sm", 0700) < 0 || mkdir("/var/lib/nfs/sm.bak", 0700) < 0 ||
	    mkdir("/var/lib/nfs/ganesha", 0755) < 0)
		return -errno;
	return 0;
}

/* Programs */

static pid_t spawn(const char *const *argv)
{
	pid_t pid = fork();
	int null;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

static int write_config(const char *path, const char *data)
{
	FILE *file = fopen(path, "w");

	if (!file)
		return -errno;
	fprintf(file,
		"NFS_CORE_PARAM { NFS_Port = %d; MNT_Port = %d; NLM_Port = %d; Protocols = 3; Enable_NLM = "
		"true;\n"
		"  Enable_RQUOTA = false; mount_path_pseudo = false; }\n"
		"NFS_KRB5 { Active_krb5 = false; }\n"
		"NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = /var/lib/nfs/ganesha; }\n"
		"EXPORT { Export_Id = 1; Path = %s; Pseudo = /bench; Access_Type = RW; Squash = "
		"No_Root_Squash;\n"
		"  SecType = sys; Protocols = 3; FSAL { Name = VFS; } }\n"
		"LOG { Default_Log_Level = WARN; }\n",
		NFS_PORT, MOUNT_PORT, NLM_PORT, data);
	return fclose(file) < 0 ? -errno : 0;
}

int peer_make_files(const char *data, size_t n_files)
{
	char path[128];

	if (mkdir(data, 0777) < 0 && errno != EEXIST)
		return -errno;
	for (size_t i = 0; i < n_files; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%zu", data, i);
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
		if (fd < 0 || fchmod(fd, 0666) < 0) /* whatever the umask */
			return -errno;
		close(fd);
	}
	return 0;
}

/* Calls */

static int connect_to(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct timeval patience = { .tv_sec = 2 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(fd);
		return -ECONNREFUSED;
	}
	return fd;
}

static bool read_all(int fd, void *data, size_t len)
{
	return recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

int peer_call(uint16_t port, const uint8_t *call, size_t len, uint8_t *results, size_t size,
	      size_t *results_lenp)
{
	uint32_t mark = htonl(0x80000000u | (uint32_t)len);
	uint8_t head[REPLY_HEAD];
	int fd = connect_to(port), r = -EPROTO;

	if (fd < 0)
		return fd;
	if (send(fd, &mark, 4, MSG_MORE) == 4 && send(fd, call, len, 0) == (ssize_t)len &&
	    read_all(fd, &mark, 4) && read_all(fd, head, sizeof(head))) {
		size_t left = (ntohl(mark) & 0x7fffffffu) - sizeof(head);

		/* accepted, and successfully */
		if (left <= size && memcmp(head + 20, "\0\0\0\0", 4) == 0 && read_all(fd, results, left)) {
			*results_lenp = left;
			r = 0;
		}
	}
	close(fd);
	return r;
}

static size_t put_opaque(uint8_t *out, const void *data, size_t len)
{
	uint32_t word = htonl((uint32_t)len);

	memcpy(out, &word, 4);
	memset(out + 4 + len, 0, 3);
	memcpy(out + 4, data, len);
	return 4 + ((len + 3) & ~(size_t)3);
}

/* An AUTH_SYS call as root: LOOKUP is refused without. */
static size_t put_call(uint8_t *out, uint32_t program, uint32_t procedure)
{
	const uint32_t cred[7] = { htonl(1), htonl(20) };
	size_t len = load_put_header(out, program, 3, procedure);

	memmove(out + 24 + sizeof(cred), out + 32, 8); /* the verifier */
	memcpy(out + 24, cred, sizeof(cred));
	return len - 8 + sizeof(cred);
}

/* Both results begin with a status and the handle. */
static int ask_handle(uint16_t port, const uint8_t *call, size_t len, struct peer_handle *handle)
{
	uint8_t results[1024];
	size_t results_len;
	uint32_t word;
	int r = peer_call(port, call, len, results, sizeof(results), &results_len);

	if (r < 0)
		return r;
	memcpy(&word, results, 4);
	if (results_len < 8 || word != 0)
		return -ENOENT;
	memcpy(&word, results + 4, 4);
	handle->len = ntohl(word);
	if (handle->len > PEER_HANDLE || results_len < 8 + handle->len)
		return -EPROTO;
	memcpy(handle->data, results + 8, handle->len);
	return 0;
}

static int mount_root(uint16_t port, const char *data, struct peer_handle *root)
{
	uint8_t call[256];
	size_t len = put_call(call, 100005, 1);

	len += put_opaque(call + len, data, strlen(data));
	return ask_handle(port, call, len, root);
}

static int look_up(uint16_t port, const struct peer_handle *root, size_t number, struct peer_handle *handle)
{
	uint8_t call[256];
	size_t len = put_call(call, 100003, 3);
	char name[24];

	len += put_opaque(call + len, root->data, root->len);
	len += put_opaque(call + len, name, (size_t)snprintf(name, sizeof(name), "%zu", number));
	return ask_handle(port, call, len, handle);
}

int peer_find_handles(uint16_t mount_port, uint16_t nfs_port, const char *data, size_t n_files,
		      struct peer_handle *handles)
{
	struct peer_handle root;
	int r = mount_root(mount_port, data, &root);

	for (size_t i = 0; i < n_files && r == 0; i++)
		r = look_up(nfs_port, &root, i, &handles[i]);
	return r;
}

/* Is @program at home? rpcbind says so. */
static bool is_registered(uint32_t program, uint32_t version)
{
	const uint32_t mapping[4] = { htonl(program), htonl(version), htonl(IPPROTO_TCP) };
	uint8_t call[64], results[64];
	size_t len = load_put_header(call, 100000, 2, 3), results_len;

	memcpy(call + len, mapping, sizeof(mapping));
	return peer_call(111, call, len + sizeof(mapping), results, sizeof(results), &results_len) == 0 &&
	       results_len == 4 && memcmp(results, "\0\0\0\0", 4) != 0;
}

/* Ganesha gives up where statd is not there yet, and statd where rpcbind is not. */
static int await_registered(uint32_t program, uint32_t version)
{
	struct timespec tick = { .tv_nsec = 50000000 };

	for (int i = 0; i < N_TRIES; i++) {
		if (is_registered(program, version))
			return 0;
		nanosleep(&tick, NULL);
	}
	return -ETIMEDOUT;
}

static int start_programs(struct peer *peer, const char *config)
{
	char log[96], pid_file[96];
	int r;

	snprintf(log, sizeof(log), "%s/log", peer->dir);
	snprintf(pid_file, sizeof(pid_file), "%s/pid", peer->dir);
	peer->pids[RPCBIND] = spawn((const char *const[]){ "rpcbind", "-f", NULL });
	r = await_registered(100000, 2);
	if (r < 0)
		return r;
	peer->pids[STATD] = spawn((const char *const[]){ "rpc.statd", "-F", "--no-notify", NULL });
	r = await_registered(100024, 1);
	if (r < 0)
		return r;
	peer->pids[GANESHA] = spawn(
		(const char *const[]){ "ganesha.nfsd", "-F", "-f", config, "-L", log, "-p", pid_file, NULL });
	return await_registered(100021, 4);
}

/* Making and freeing */

static bool is_installed(const char *program)
{
	char command[64];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	return system(command) == 0;
}

int peer_start(struct peer **peerp, size_t n_files, struct peer_handle *handles, uint16_t *nlm_portp)
{
	char config[96], data[96];
	struct peer *peer;
	int r;

	if (!is_installed("ganesha.nfsd") || !is_installed("rpcbind") || !is_installed("rpc.statd"))
		return -ENOENT;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	strcpy(peer->dir, "/tmp/holdfast-bench-XXXXXX");
	if (!mkdtemp(peer->dir)) {
		free(peer);
		return -errno;
	}
	snprintf(config, sizeof(config), "%s/conf", peer->dir);
	snprintf(data, sizeof(data), "%s/data", peer->dir);
	r = cover_directories();
	if (r == 0)
		r = peer_make_files(data, n_files);
	if (r == 0)
		r = write_config(config, data);
	if (r == 0)
		r = start_programs(peer, config);
	if (r == 0)
		r = peer_find_handles(MOUNT_PORT, NFS_PORT, data, n_files, handles);
	if (r < 0) {
		peer_stop(peer);
		return r;
	}
	*nlm_portp = NLM_PORT;
	*peerp = peer;
	return 0;
}

void peer_stop(struct peer *peer)
{
	char command[96];

	for (int i = N_PROGRAMS - 1; i >= 0; i--) {
		if (peer->pids[i] <= 0)
			continue;
		kill(peer->pids[i], SIGKILL);
		waitpid(peer->pids[i], NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", peer->dir);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", peer->dir);
	free(peer);
}

pid_t peer_pid(const struct peer *peer)
{
	return peer->pids[GANESHA];
}
