#include "cluster/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"

#define SOCKET 3 /* the only descriptor behind the standard streams */

/* Leaves all that is the server's: descriptors, terminal, signals. A stop of the service signals the helper,
 * too. The lock of the state directory must end with the server. */
static void leave_server(const char *name, bool has_log, int socket)
{
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	setsid();
	prctl(PR_SET_NAME, name);
	for (size_t i = 0; i < HF_ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		if (fd == 0 || !has_log)
			dup2(null, fd);
	if (socket != SOCKET)
		dup3(socket, SOCKET, O_CLOEXEC);
	closefrom(SOCKET + 1);
}

/* Forks twice: the helper's parent ends at once, so the server need not wait for the helper later, which the
 * sandbox forbids. */
int hf_helper_fork(const char *name, bool has_log, void (*run)(void *user, int socket), void *user,
		   int *socketp)
{
	hf_cleanup(hf_closep) int ours = -1, theirs = -1;
	int pair[2], status = 0;
	pid_t between;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hf_trace(-errno);
	ours = pair[0];
	theirs = pair[1];
	between = fork();
	if (between < 0)
		return hf_trace(-errno);
	if (between == 0) {
		pid_t child = fork();

		if (child == 0) {
			leave_server(name, has_log, theirs);
			run(user, SOCKET);
		}
		_exit(child < 0);
	}
	while (waitpid(between, &status, 0) < 0)
		if (errno != EINTR)
			return hf_trace(-errno);
	if (status != 0)
		return hf_trace(-EAGAIN);
	*socketp = ours;
	ours = -1;
	return 0;
}
