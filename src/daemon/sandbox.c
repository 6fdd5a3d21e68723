#include "daemon/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"

/* Capabilities */

/* To act as any client's user, and to do with files what that user may. */
#define FILE_CAPS                                                                                          \
	(HF_CAP(CAP_CHOWN) | HF_CAP(CAP_DAC_OVERRIDE) | HF_CAP(CAP_DAC_READ_SEARCH) | HF_CAP(CAP_FOWNER) | \
	 HF_CAP(CAP_FSETID) | HF_CAP(CAP_MKNOD) | HF_CAP(CAP_SETGID) | HF_CAP(CAP_SETUID))
#define RETAINED_CAPS (FILE_CAPS | HF_CAP(CAP_NET_BIND_SERVICE))
/* Permitted, but effective only while the mount of an export is cloned (vfs/volume.c). */
#define LENT_CAPS HF_CAP(CAP_SYS_ADMIN)

void hf_sandbox_limit_caps(bool changes_addresses)
{
	struct hf_caps caps = { .effective = RETAINED_CAPS, .permitted = RETAINED_CAPS | LENT_CAPS };
	int r;

	if (changes_addresses)
		caps.permitted |= HF_CAP(CAP_NET_ADMIN);
	/* The bounding set comes first: it needs CAP_SETPCAP, which is dropped below. */
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		if (!(caps.permitted & HF_CAP(cap)))
			prctl(PR_CAPBSET_DROP, cap); /* fails without root; then there is little to drop */
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	r = hf_caps_limit(caps);
	if (r < 0)
		hf_log_warn("cannot drop unneeded capabilities", "error=%s", strerrorname_np(-r));
}

/* System calls */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH

/* The newest call that the lists below know, as of Linux 6.1. Newer calls get ENOSYS: libc tries them and
 * falls back to older ones. On x86 the calls of x32 are above this number, too. */
#define NEWEST_CALL 450

/* Allowed with any arguments. Since 5.11 the kernel caches this and does not run the filter; for older
 * kernels the calls of the hot paths come first. */
static const uint16_t allowed[] = {
	/* sockets and waiting */
	SYS_epoll_pwait,
	SYS_epoll_ctl,
	SYS_futex,
	SYS_read,
	SYS_write,
	SYS_writev,
	SYS_readv,
	SYS_recvfrom,
	SYS_sendto,
	SYS_recvmsg,
	SYS_sendmsg,
	SYS_recvmmsg,
	SYS_sendmmsg,
	SYS_accept4,
	SYS_close,
	SYS_shutdown,
	SYS_accept,
	SYS_bind,
	SYS_connect,
	SYS_listen,
	SYS_getsockname,
	SYS_getpeername,
	SYS_getsockopt,
	SYS_setsockopt,
	SYS_epoll_create1,
	SYS_epoll_pwait2,
	SYS_eventfd2,
	SYS_pipe2,
	SYS_ppoll,
	SYS_pselect6,
	SYS_dup,
	SYS_dup3,
	SYS_close_range,
	SYS_fcntl,
	/* identities of clients */
	SYS_setfsuid,
	SYS_setfsgid,
	SYS_setgroups,
	SYS_umask,
	/* files */
	SYS_openat,
	SYS_openat2,
	SYS_open_by_handle_at,
	SYS_name_to_handle_at,
	SYS_open_tree,
	SYS_fstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_statfs,
	SYS_fstatfs,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_lseek,
	SYS_pread64,
	SYS_pwrite64,
	SYS_preadv,
	SYS_pwritev,
	SYS_preadv2,
	SYS_pwritev2,
	SYS_fsync,
	SYS_fdatasync,
	SYS_syncfs,
	SYS_sync_file_range,
	SYS_fallocate,
	SYS_fadvise64,
	SYS_readahead,
	SYS_copy_file_range,
	SYS_sendfile,
	SYS_splice,
	SYS_truncate,
	SYS_ftruncate,
	SYS_fchmod,
	SYS_fchmodat,
	SYS_fchown,
	SYS_fchownat,
	SYS_utimensat,
	SYS_getdents64,
	SYS_mkdirat,
	SYS_mknodat,
	SYS_linkat,
	SYS_symlinkat,
	SYS_readlinkat,
	SYS_unlinkat,
	SYS_renameat,
	SYS_renameat2,
	SYS_flock,
	SYS_getcwd,
	SYS_inotify_init1,
	SYS_inotify_add_watch,
	SYS_inotify_rm_watch,
	/* memory */
	SYS_brk,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_msync,
	SYS_membarrier,
	/* threads, signals, time */
	SYS_exit,
	SYS_exit_group,
	SYS_set_robust_list,
	SYS_get_robust_list,
	SYS_set_tid_address,
	SYS_rseq,
	SYS_sched_yield,
	SYS_sched_getaffinity,
	SYS_sched_getparam,
	SYS_sched_getscheduler,
	SYS_getcpu,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_rt_sigtimedwait,
	SYS_rt_sigpending,
	SYS_sigaltstack,
	SYS_signalfd4,
	SYS_restart_syscall,
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_clock_nanosleep,
	SYS_nanosleep,
	SYS_gettimeofday,
	SYS_timerfd_create,
	SYS_timerfd_settime,
	SYS_timerfd_gettime,
	/* information about the system and this process */
	SYS_getpid,
	SYS_gettid,
	SYS_getppid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getgroups,
	SYS_getresuid,
	SYS_getresgid,
	SYS_capget,
	SYS_capset,
	SYS_getrandom,
	SYS_uname,
	SYS_sysinfo,
	SYS_getrusage,
	SYS_times,
	SYS_prlimit64,
	SYS_getrlimit,
	SYS_setrlimit,
#ifdef __x86_64__ /* older variants of the calls above */
	SYS_epoll_wait,
	SYS_poll,
	SYS_select,
	SYS_pipe,
	SYS_dup2,
	SYS_eventfd,
	SYS_epoll_create,
	SYS_time,
	SYS_open,
	SYS_stat,
	SYS_lstat,
	SYS_access,
	SYS_getdents,
	SYS_mkdir,
	SYS_mknod,
	SYS_link,
	SYS_symlink,
	SYS_readlink,
	SYS_unlink,
	SYS_rmdir,
	SYS_rename,
	SYS_chmod,
	SYS_chown,
	SYS_lchown,
	SYS_utimes,
	SYS_inotify_init,
#endif
#ifdef HF_SANITIZED /* the leak checker stops the threads from a process of its own */
	SYS_ptrace,
	SYS_wait4,
	SYS_clone,
	SYS_clone3,
	SYS_prctl,
	SYS_kill,
	SYS_tgkill,
#endif
};

/* Allowed if (argument & mask) is one of the values. The filter sees only the lower 32 bits of an argument;
 * the kernel uses no more of these. */
struct check {
	uint16_t call;
	uint8_t argument;
	uint8_t n_values;
	uint32_t mask;
	uint32_t values[8];
};

#define NAMESPACES                                                                                    \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
	 CLONE_NEWNET)
#define WX (PROT_WRITE | PROT_EXEC)

static const struct check checks[] = {
	/* The last two: numbers and names of interfaces, for link-local addresses */
	{ SYS_ioctl,
	  1,
	  8,
	  UINT32_MAX,
	  { FIONBIO, FIONREAD, FIOCLEX, TCGETS, TIOCGWINSZ, FS_IOC_GETFLAGS, SIOCGIFINDEX, SIOCGIFNAME } },
	{ SYS_socket, 0, 4, UINT32_MAX, { AF_INET, AF_INET6, AF_UNIX, AF_NETLINK } },
	{ SYS_socketpair, 0, 1, UINT32_MAX, { AF_UNIX } },
	{ SYS_unshare, 0, 1, UINT32_MAX, { CLONE_FS } },      /* for a umask that belongs to one thread */
	{ SYS_mmap, 2, 3, WX, { 0, PROT_WRITE, PROT_EXEC } }, /* never writable and executable memory */
	{ SYS_mprotect, 2, 1, PROT_EXEC, { 0 } },
#ifndef HF_SANITIZED
	{ SYS_clone, 0, 1, CLONE_THREAD | NAMESPACES, { CLONE_THREAD } }, /* creates threads, not processes */
	{ SYS_prctl, 0, 3, UINT32_MAX, { PR_SET_NAME, PR_GET_NAME, 0x53564d41 /* PR_SET_VMA */ } },
#endif
};

/* libc and libuv try these first and manage without them. Their arguments are in memory, which a filter
 * cannot read. */
static const uint16_t absent[] = {
#ifndef HF_SANITIZED
	SYS_clone3,
#endif
	SYS_io_uring_setup,
};

#define MAX_STEPS (2 * HF_ARRAY_SIZE(allowed) + 16 * (HF_ARRAY_SIZE(checks) + 2) + 16)

struct program {
	unsigned short n;
	struct sock_filter steps[MAX_STEPS];
};

static void step(struct program *program, uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false)
{
	program->steps[program->n++] = (struct sock_filter)BPF_JUMP(code, k, if_true, if_false);
}

static void load(struct program *program, size_t offset)
{
	step(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *program, uint32_t what)
{
	step(program, BPF_RET | BPF_K, what, 0, 0);
}

/* If the accumulator equals @value, answer @what; otherwise continue. */
static void answer_if(struct program *program, uint32_t value, uint32_t what)
{
	step(program, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	answer(program, what);
}

/* Loads the call's number. Calls of another architecture have other numbers and are refused. */
static void begin(struct program *program)
{
	program->n = 0;
	load(program, offsetof(struct seccomp_data, arch));
	step(program, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	answer(program, SECCOMP_RET_ERRNO | EPERM);
	load(program, offsetof(struct seccomp_data, nr));
}

static void add_check(struct program *program, const struct check *check)
{
	unsigned short skip = program->n;

	step(program, BPF_JMP | BPF_JEQ | BPF_K, check->call, 0, 0);
	load(program, offsetof(struct seccomp_data, args) + check->argument * sizeof(uint64_t));
	step(program, BPF_ALU | BPF_AND | BPF_K, check->mask, 0, 0);
	for (size_t i = 0; i < check->n_values; i++)
		answer_if(program, check->values[i], SECCOMP_RET_ALLOW);
	answer(program, SECCOMP_RET_ERRNO | EPERM);
	program->steps[skip].jf = (uint8_t)(program->n - skip - 1);
}

/* Calls that appear not to exist: ENOSYS, without a line in the kernel's log, since libc tries them often.
 * libc also opens netlink sockets to list this host's addresses; if it cannot, it assumes all address
 * families. */
static void make_absent(struct program *program)
{
	begin(program);
	step(program, BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
	answer(program, SECCOMP_RET_ERRNO | ENOSYS);
	for (size_t i = 0; i < HF_ARRAY_SIZE(absent); i++)
		answer_if(program, absent[i], SECCOMP_RET_ERRNO | ENOSYS);
	step(program, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3);
	load(program, offsetof(struct seccomp_data, args));
	answer_if(program, AF_NETLINK, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	answer(program, SECCOMP_RET_ALLOW);
}

/* Calls that are refused. Absent calls pass here, so that the other filter answers them. */
static void make_list(struct program *program)
{
	begin(program);
	for (size_t i = 0; i < HF_ARRAY_SIZE(allowed); i++)
		answer_if(program, allowed[i], SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < HF_ARRAY_SIZE(checks); i++)
		add_check(program, &checks[i]);
#ifndef HF_SANITIZED
	/* abort() and raise() */
	add_check(program, &(struct check){ SYS_tgkill, 0, 1, UINT32_MAX, { (uint32_t)getpid() } });
	add_check(program, &(struct check){ SYS_kill, 0, 1, UINT32_MAX, { (uint32_t)getpid() } });
#endif
	for (size_t i = 0; i < HF_ARRAY_SIZE(absent); i++)
		answer_if(program, absent[i], SECCOMP_RET_ALLOW);
	step(program, BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
	answer(program, SECCOMP_RET_ALLOW);
	answer(program, SECCOMP_RET_ERRNO | EPERM);
}

static int install(struct program *program, unsigned int flags)
{
	struct sock_fprog prog = { .len = program->n, .filter = program->steps };

	long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | SECCOMP_FILTER_FLAG_TSYNC, &prog);

	return r < 0 ? -errno : r > 0 ? -EBUSY : 0; /* a thread already has another filter */
}

static int filter_calls(void)
{
	struct program program, list;
	int r;

	make_absent(&program);
	make_list(&list);
	r = install(&program, 0);
	/* The kernel logs a refused call: either the list lacks it, or the process is under attack. The list
	 * comes last, because it does not allow seccomp(). */
	return r < 0 ? r : install(&list, SECCOMP_FILTER_FLAG_LOG);
}

#else

/* The lists are only for processors on which they were tested. */
static int filter_calls(void)
{
	return -ENOTSUP;
}

#endif

void hf_sandbox_enter(void)
{
	int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;

	if (r == 0)
		r = filter_calls();
	if (r < 0)
		hf_log_warn("system calls cannot be restricted: the kernel has no filter for them",
			    "error=%s", strerrorname_np(-r));
}
