/* In a process of its own each, since there is no way back: what is given up is gone, and what is needed is
 * there. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/macros.h"
#include "daemon/sandbox.h"

/* @fn's answer, or 128 and the signal that ended it. */
static int in_sandbox_of(bool changes_addresses, int (*fn)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		hf_sandbox_limit_caps(changes_addresses);
		hf_sandbox_enter();
		_exit(fn());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int in_sandbox(int (*fn)(void))
{
	return in_sandbox_of(false, fn);
}

/* Other processors than those that the lists were tried on have no filter, nor have some emulators. */
static int is_filtered(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT;
}

/* Calls with arguments that would do no harm if they were let through. */
struct attempt {
	const char *what;
	long number;
	long args[4];
	int error;
};

static const struct attempt forbidden[] = {
	{ "execve", SYS_execve, { 0 }, EPERM },
	{ "execveat", SYS_execveat, { -1 }, EPERM },
	{ "mount", SYS_mount, { 0 }, EPERM },
	{ "umount2", SYS_umount2, { 0 }, EPERM },
	{ "pivot_root", SYS_pivot_root, { 0 }, EPERM },
	{ "chroot", SYS_chroot, { 0 }, EPERM },
	{ "move_mount", SYS_move_mount, { -1 }, EPERM },
	{ "setns", SYS_setns, { -1 }, EPERM },
	{ "unshare of a namespace", SYS_unshare, { CLONE_NEWUSER }, EPERM },
	{ "unshare of more than the umask", SYS_unshare, { CLONE_FS | CLONE_NEWNS }, EPERM },
	{ "setuid", SYS_setuid, { 0 }, EPERM },
	{ "setresuid", SYS_setresuid, { -1, -1, -1 }, EPERM },
	{ "bpf", SYS_bpf, { -1 }, EPERM },
	{ "perf_event_open", SYS_perf_event_open, { 0 }, EPERM },
	{ "init_module", SYS_init_module, { 0 }, EPERM },
	{ "finit_module", SYS_finit_module, { -1 }, EPERM },
	{ "delete_module", SYS_delete_module, { 0 }, EPERM },
	{ "kexec_load", SYS_kexec_load, { 0 }, EPERM },
	{ "reboot", SYS_reboot, { 0 }, EPERM },
	{ "keyctl", SYS_keyctl, { -1 }, EPERM },
	{ "add_key", SYS_add_key, { 0 }, EPERM },
	{ "userfaultfd", SYS_userfaultfd, { -1 }, EPERM },
	{ "process_vm_writev", SYS_process_vm_writev, { 0 }, EPERM },
	{ "pidfd_open", SYS_pidfd_open, { -1 }, EPERM },
	{ "memfd_create", SYS_memfd_create, { 0 }, EPERM },
	{ "swapon", SYS_swapon, { 0 }, EPERM },
	{ "settimeofday", SYS_settimeofday, { 0 }, EPERM },
	{ "sethostname", SYS_sethostname, { 0, -1 }, EPERM },
	{ "seccomp", SYS_seccomp, { -1 }, EPERM },
	{ "fanotify_init", SYS_fanotify_init, { -1 }, EPERM },
	{ "a packet socket", SYS_socket, { AF_PACKET, SOCK_RAW, 0 }, EPERM },
	{ "a netlink socket", SYS_socket, { AF_NETLINK, SOCK_RAW, 0 }, EAFNOSUPPORT },
	{ "a vsock socket", SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 }, EPERM },
	{ "typing into a terminal", SYS_ioctl, { -1, TIOCSTI }, EPERM },
#ifdef SYS_mmap
	{ "code in memory that can be written",
	  SYS_mmap,
	  { 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC },
	  EPERM },
#endif
	{ "memory that becomes code", SYS_mprotect, { 0, 0, PROT_READ | PROT_EXEC }, EPERM },
	{ "io_uring_setup", SYS_io_uring_setup, { 0 }, ENOSYS },
	{ "a call that is newer than the list", 460, { -1 }, ENOSYS },
#ifdef __x86_64__
	{ "a call of x32", 0x40000000 + SYS_getpid, { 0 }, ENOSYS },
	{ "iopl", SYS_iopl, { 0 }, EPERM },
	{ "modify_ldt", SYS_modify_ldt, { -1 }, EPERM },
#endif
#ifndef HF_SANITIZED
	{ "ptrace", SYS_ptrace, { -1 }, EPERM },
	{ "a process", SYS_clone, { SIGCHLD }, EPERM },
	{ "clone3", SYS_clone3, { 0 }, ENOSYS },
	{ "a signal to another process", SYS_kill, { 1, 0 }, EPERM },
	{ "a signal to all", SYS_kill, { -1, 0 }, EPERM },
	{ "prctl of what it was", SYS_prctl, { PR_SET_DUMPABLE, 1 }, EPERM },
	{ "prctl of seccomp", SYS_prctl, { PR_SET_SECCOMP, 0 }, EPERM },
#endif
};

/* The number of the first that was not refused, from 1; 0: all were. */
static int attempt_all(void)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(forbidden); i++) {
		const struct attempt *one = &forbidden[i];

		errno = 0;
		if (syscall(one->number, one->args[0], one->args[1], one->args[2], one->args[3]) != -1 ||
		    errno != one->error)
			return (int)i + 1;
	}
	return 0;
}

static void test_forbidden_calls_are_refused(void **state)
{
	int r;

	if (!in_sandbox(is_filtered))
		skip();
	r = in_sandbox(attempt_all);
	if (r > 0 && r <= (int)HF_ARRAY_SIZE(forbidden))
		fail_msg("%s was not refused", forbidden[r - 1].what);
	assert_int_equal(r, 0);
}

static void *in_thread(void *arg)
{
	*(bool *)arg = unshare(CLONE_FS) == 0 || errno == EPERM;
	return NULL;
}

#define NEED(condition)                        \
	do {                                   \
		if (!(condition))              \
			return __LINE__ % 100; \
	} while (0)

/* What a server lives on; each is let through, with whatever result. */
static int live(void)
{
	char path[] = "/tmp/hf-sandbox-XXXXXX";
	struct addrinfo *found = NULL;
	bool is_well = false;
	pthread_t thread;
	int fd = mkstemp(path), pair[2];

	NEED(fd >= 0);
	NEED(write(fd, "x", 1) == 1 && fdatasync(fd) == 0 && fchmod(fd, 0600) == 0);
	NEED(unlink(path) == 0 && close(fd) == 0);
	NEED(pthread_create(&thread, NULL, in_thread, &is_well) == 0 && pthread_join(thread, NULL) == 0);
	NEED(is_well);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	NEED(getaddrinfo("localhost", NULL, NULL, &found) !=
	     EAI_SYSTEM); /* loads libraries, asks for netlink */
	NEED(prctl(PR_SET_NAME, "sandboxed") == 0);
	NEED(syscall(SYS_gettid) == getpid());
	NEED(kill(getpid(), 0) == 0);
	return 0;
}

static void test_needed_calls_work(void **state)
{
	assert_int_equal(in_sandbox(live), 0);
}

/* An assertion that fails ends the process as it should. */
static int end_by_abort(void)
{
	signal(SIGABRT, SIG_DFL);
	abort();
}

static void test_abort_aborts(void **state)
{
	assert_int_equal(in_sandbox(end_by_abort), 128 + SIGABRT);
}

static int look_at_caps(void)
{
	struct hf_caps caps = hf_caps_get();
	const uint64_t gone = HF_CAP(CAP_SYS_MODULE) | HF_CAP(CAP_SYS_PTRACE) | HF_CAP(CAP_NET_ADMIN) |
			      HF_CAP(CAP_NET_RAW) | HF_CAP(CAP_SYS_RESOURCE) | HF_CAP(CAP_SETPCAP) |
			      HF_CAP(CAP_SYS_RAWIO) | HF_CAP(CAP_SYS_BOOT) | HF_CAP(CAP_KILL);

	NEED(!(caps.permitted & gone));
	NEED(!(caps.effective & HF_CAP(CAP_SYS_ADMIN)));
	if (!(caps.permitted & HF_CAP(CAP_SYS_ADMIN)))
		return 0;
	NEED(hf_caps_raise(CAP_SYS_ADMIN));
	NEED(hf_caps_get().effective & HF_CAP(CAP_SYS_ADMIN));
	NEED(!hf_caps_raise(CAP_SYS_ADMIN)); /* is up */
	hf_caps_lower(CAP_SYS_ADMIN);
	NEED(!(hf_caps_get().effective & HF_CAP(CAP_SYS_ADMIN)));
	NEED(!hf_caps_raise(CAP_SYS_MODULE));
	return 0;
}

static void test_capabilities_are_gone(void **state)
{
	assert_int_equal(in_sandbox(look_at_caps), 0);
}

static int look_at_caps_for_addresses(void)
{
	const uint64_t admin = HF_CAP(CAP_NET_ADMIN);
	struct hf_caps caps = hf_caps_get();

	NEED(!(caps.effective & admin));
	NEED(!(caps.permitted & (HF_CAP(CAP_NET_RAW) | HF_CAP(CAP_SYS_MODULE))));
	if (!(caps.permitted & admin))
		return geteuid() == 0 ? __LINE__ % 100 : 0;
	NEED(hf_caps_raise(CAP_NET_ADMIN));
	hf_caps_lower(CAP_NET_ADMIN);
	NEED(!(hf_caps_get().effective & admin));
	return 0;
}

static void test_addresses_need_one_capability_more(void **state)
{
	if (geteuid() == 0 && !(hf_caps_get().permitted & HF_CAP(CAP_NET_ADMIN)))
		skip(); /* a container */
	assert_int_equal(in_sandbox_of(true, look_at_caps_for_addresses), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forbidden_calls_are_refused),
		cmocka_unit_test(test_needed_calls_work),
		cmocka_unit_test(test_abort_aborts),
		cmocka_unit_test(test_capabilities_are_gone),
		cmocka_unit_test(test_addresses_need_one_capability_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
