/*
 * A process with one file open that does what it is told on its standard input, one line at a time, and
 * answers each with one line: so that several lock owners live on one machine, and a lock lives from one act
 * of a play to the next.
 *
 *	locker FILE
 *	set r|w START LENGTH	fcntl F_SETLK; length 0: to the end
 *	wait r|w START LENGTH	fcntl F_SETLKW; SIGUSR1 interrupts it
 *	unset START LENGTH	fcntl F_UNLCK
 *	test r|w START LENGTH	fcntl F_GETLK
 *	flock s|x|u [wait]	flock(2), which the Linux client makes a lock of the whole file
 *	many N			F_SETLK of N single bytes with gaps between them
 *	write TEXT, read	at the start of the file
 *	close			close the file and end
 *
 * Answers: granted, denied, interrupted, unlocked, free, held r|w START LENGTH, done, text …, or the name of
 * an errno.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void on_interrupt(int number)
{
	(void)number;
}

static const char *refusal(void)
{
	switch (errno) {
	case EAGAIN:
	case EACCES:
		return "denied";
	case EINTR:
		return "interrupted";
	default:
		return strerrorname_np(errno);
	}
}

static int mode_of(char letter)
{
	return letter == 'r' ? F_RDLCK : F_WRLCK;
}

static void lock_range(int fd, const char *verb, char mode, long long start, long long length)
{
	struct flock lock = {
		.l_type = (short)mode_of(mode), .l_whence = SEEK_SET, .l_start = start, .l_len = length
	};
	int command = !strcmp(verb, "wait") ? F_SETLKW : !strcmp(verb, "test") ? F_GETLK : F_SETLK;

	if (fcntl(fd, command, &lock) < 0)
		puts(refusal());
	else if (command != F_GETLK)
		puts("granted");
	else if (lock.l_type == F_UNLCK)
		puts("free");
	else
		printf("held %c %lld %lld\n", lock.l_type == F_RDLCK ? 'r' : 'w', (long long)lock.l_start,
		       (long long)lock.l_len);
}

static void unlock_range(int fd, long long start, long long length)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length };

	puts(fcntl(fd, F_SETLK, &lock) < 0 ? refusal() : "unlocked");
}

static void lock_whole(int fd, char mode, int may_wait)
{
	int operation = mode == 'u' ? LOCK_UN : mode == 's' ? LOCK_SH : LOCK_EX;

	if (flock(fd, operation | (may_wait ? 0 : LOCK_NB)) < 0)
		puts(refusal());
	else
		puts(mode == 'u' ? "unlocked" : "granted");
}

static void lock_many(int fd, int n)
{
	for (int i = 0; i < n; i++) {
		struct flock lock = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2LL * i, .l_len = 1
		};

		if (fcntl(fd, F_SETLK, &lock) < 0) {
			puts(refusal());
			return;
		}
	}
	puts("granted");
}

static void obey(int fd, char *line)
{
	char verb[16] = "", mode = 0, how[8] = "", text[400];
	long long start, length;
	ssize_t n;

	if (sscanf(line, "unset %lld %lld", &start, &length) == 2) {
		unlock_range(fd, start, length);
	} else if (sscanf(line, "flock %c %7s", &mode, how) >= 1) {
		lock_whole(fd, mode, !strcmp(how, "wait"));
	} else if (sscanf(line, "many %lld", &length) == 1) {
		lock_many(fd, (int)length);
	} else if (sscanf(line, "write %399[^\n]", text) == 1) {
		puts(pwrite(fd, text, strlen(text), 0) < 0 || fsync(fd) < 0 ? refusal() : "done");
	} else if (!strcmp(line, "read\n")) {
		n = pread(fd, text, sizeof(text), 0);
		if (n < 0)
			puts(refusal());
		else
			printf("text %.*s\n", (int)n, text);
	} else if (sscanf(line, "%15s %c %lld %lld", verb, &mode, &start, &length) == 4) {
		lock_range(fd, verb, mode, start, length);
	} else {
		puts("what?");
	}
}

/* A signal that comes when the wait is over already must not end this program. */
static char *next_line(char *line, int size)
{
	char *got;

	while (!(got = fgets(line, size, stdin)) && errno == EINTR && !feof(stdin))
		clearerr(stdin);
	return got;
}

int main(int argc, char **argv)
{
	struct sigaction interrupt = { .sa_handler = on_interrupt }; /* no SA_RESTART: the wait ends */
	char line[512];
	int fd;

	if (argc != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGUSR1, &interrupt, NULL);
	fd = open(argv[1], O_RDWR | O_CREAT, 0666);
	puts(fd < 0 ? strerrorname_np(errno) : "open");
	while (fd >= 0 && next_line(line, sizeof(line))) {
		if (!strcmp(line, "close\n")) {
			close(fd);
			puts("closed");
			return 0;
		}
		obey(fd, line);
	}
	return 0;
}
