/*
 * A load that runs until SIGUSR1, and says then what it did and the longest time that one round of it took.
 *
 *	runner turns FILE NAME	waits for a lock, finds the page as the last holder left it, counts one up, unlocks
 *	runner writes FILE	writes 8 pages and syncs them: round N at slot N % 64 of the file
 *	runner reads FILE	reads a page past the client's cache
 *
 * Says "runs" first, and at the end "ROUNDS SECONDS-OF-THE-LONGEST", or what was wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE  4096
#define PAGES 8
#define SLOTS 64

struct page {
	uint64_t count;
	char holder[16];
};

static volatile sig_atomic_t is_over;

static void on_end(int number)
{
	(void)number;
	is_over = 1;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
	printf("%s: %s\n", what, strerrorname_np(errno));
	exit(1);
}

static void set_lock(int fd, int type)
{
	struct flock lock = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	/* While the client waits for the end of the server's grace, Linux does not restart the call after a signal. */
	while (fcntl(fd, F_SETLKW, &lock) < 0)
		if (errno != EINTR)
			die("lock");
}

static void put_page(int fd, const struct page *page)
{
	if (pwrite(fd, page, sizeof(*page), 0) != sizeof(*page) || fsync(fd) < 0)
		die("write");
}

static void turn(int fd, const char *name)
{
	static uint64_t seen;
	struct page page = { 0 };

	set_lock(fd, F_WRLCK);
	if (pread(fd, &page, sizeof(page), 0) < 0)
		die("read");
	if (page.holder[0]) {
		printf("%s has the lock that %.16s has\n", name, page.holder);
		exit(1);
	}
	if (page.count < seen) {
		printf("turn %llu came after %llu\n", (unsigned long long)page.count, (unsigned long long)seen);
		exit(1);
	}
	strncpy(page.holder, name, sizeof(page.holder) - 1);
	put_page(fd, &page);
	memset(page.holder, 0, sizeof(page.holder));
	seen = ++page.count;
	put_page(fd, &page);
	set_lock(fd, F_UNLCK);
}

static void write_round(int fd, uint64_t round)
{
	static uint64_t words[PAGES * PAGE / sizeof(uint64_t)];

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		words[i] = round << 16 | i;
	if (pwrite(fd, words, sizeof(words), (off_t)(round % SLOTS * sizeof(words))) != sizeof(words) || fsync(fd) < 0)
		die("write");
}

static void read_round(int fd)
{
	static char page[PAGE] __attribute__((aligned(PAGE)));

	if (pread(fd, page, sizeof(page), 0) != sizeof(page))
		die("read");
}

int main(int argc, char **argv)
{
	struct sigaction end = { .sa_handler = on_end, .sa_flags = SA_RESTART };
	double longest = 0, before, after;
	uint64_t rounds = 0;
	int fd;

	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGUSR1, &end, NULL);
	fd = open(argv[2], O_RDWR | O_CREAT | (*argv[1] == 'r' ? O_DIRECT : 0), 0666);
	if (fd < 0)
		die("open");
	puts("runs");
	for (before = now(); !is_over; before = after) {
		if (*argv[1] == 't')
			turn(fd, argv[3]);
		else if (*argv[1] == 'w')
			write_round(fd, rounds);
		else
			read_round(fd);
		rounds++;
		after = now();
		if (after - before > longest)
			longest = after - before;
	}
	printf("%llu %.3f\n", (unsigned long long)rounds, longest);
	return 0;
}
