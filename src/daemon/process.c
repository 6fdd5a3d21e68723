#include "daemon/process.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/state_dir.h"

#define LAST_SECONDS 5 /* for workers that wait for a file when the server stops */

size_t hf_process_raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1024;
	if (limit.rlim_cur < limit.rlim_max) {
		rlim_t before = limit.rlim_cur;

		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			limit.rlim_cur = before;
	}
	return limit.rlim_cur == RLIM_INFINITY ? 1u << 20 : (size_t)limit.rlim_cur;
}

/* Retains the right to ports below 1024: calls to rpcbind and to peers need it later, too. The right to
 * change addresses is effective only during a change. */
static int retain_rights(bool changes_addresses)
{
	const uint64_t retained = HF_CAP(CAP_NET_BIND_SERVICE);
	const uint64_t lent = changes_addresses ? HF_CAP(CAP_NET_ADMIN) : 0;

	return hf_caps_limit((struct hf_caps){ .effective = retained, .permitted = retained | lent });
}

static int become(const struct passwd *entry, bool changes_addresses)
{
	int r = 0;

	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || initgroups(entry->pw_name, entry->pw_gid) < 0 ||
	    setgid(entry->pw_gid) < 0 || setuid(entry->pw_uid) < 0)
		r = -errno;
	prctl(PR_SET_KEEPCAPS, 0);
	return r < 0 ? r : retain_rights(changes_addresses);
}

static int give_and_become(const struct passwd *entry, bool changes_addresses, struct hf_state_dir *dir)
{
	int r = hf_state_dir_give(dir, entry->pw_uid, entry->pw_gid);

	return r < 0 ? r : become(entry, changes_addresses);
}

int hf_process_become(const char *user, bool changes_addresses, struct hf_state_dir *dir, char *error,
		      size_t error_size)
{
	struct passwd *entry;
	int r;

	if (!*user)
		return 0;
	entry = getpwnam(user);
	if (!entry) {
		snprintf(error, error_size, "server.user: there is no user %s on this host", user);
		return -ENOENT;
	}
	if (entry->pw_uid == 0 && geteuid() == 0)
		return 0;
	/* A service manager may have started the server as this user, with capabilities. */
	r = entry->pw_uid == geteuid() ? retain_rights(changes_addresses)
				       : give_and_become(entry, changes_addresses, dir);
	if (r < 0)
		snprintf(error, error_size,
			 "cannot become the user %s: %s; start as root, or leave server.user empty", user,
			 strerror(-r));
	return r;
}

size_t hf_process_count_cores(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	n = CPU_COUNT(&set);
	return n > 0 ? (size_t)n : 1;
}

struct hf_process_end {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool is_called_off;
	int status;
};

static void *end_anyway(void *user)
{
	struct hf_process_end *end = user;
	struct timespec at;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += LAST_SECONDS;
	pthread_mutex_lock(&end->lock);
	while (!end->is_called_off && r != ETIMEDOUT)
		r = pthread_cond_clockwait(&end->wake, &end->lock, CLOCK_MONOTONIC, &at);
	pthread_mutex_unlock(&end->lock);
	if (end->is_called_off)
		return NULL;
	hf_log_warn("stopped; gave up calls that wait for a disk that does not answer", "%s", "");
	_exit(end->status); /* exit() would wait for the workers */
}

struct hf_process_end *hf_process_end_soon(int status)
{
	struct hf_process_end *end = calloc(1, sizeof(*end));

	if (!end)
		return NULL;
	end->status = status;
	pthread_mutex_init(&end->lock, NULL);
	pthread_cond_init(&end->wake, NULL);
	if (pthread_create(&end->thread, NULL, end_anyway, end) == 0)
		return end;
	free(end);
	return NULL;
}

void hf_process_end_not(struct hf_process_end *end)
{
	if (!end)
		return;
	pthread_mutex_lock(&end->lock);
	end->is_called_off = true;
	pthread_cond_signal(&end->wake);
	pthread_mutex_unlock(&end->lock);
	pthread_join(end->thread, NULL);
	pthread_mutex_destroy(&end->lock);
	pthread_cond_destroy(&end->wake);
	free(end);
}
