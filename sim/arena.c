#include "arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#define RAW            __attribute__((no_sanitize_address))
#define REUSES         false /* so that a use after free is found */
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define RAW
#define REUSES true
#endif

#define ARENA_BYTES ((size_t)1 << 30) /* of addresses; untouched memory costs nothing */
#define ALIGN       ((size_t)16)
#define N_SMALL     64 /* classes of 16, 32, ... bytes; above, powers of two */
#define N_CLASSES   (N_SMALL + 24)

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *p);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __wrap_free(void *p);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_asprintf(char **outp, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Before each block, as long as the alignment. */
struct head {
	uint64_t size;
	uint64_t class;
};

struct arena {
	uint8_t *base;
	uint8_t *next;
	uint8_t *end;
	void *free[N_CLASSES]; /* linked through their first word */
};

/* malloc() has no argument that says which arena is meant, so these are global. */
static struct arena processes[SIM_ARENAS], outside;
static struct arena *process; /* whose code runs; NULL: none */

static void arena_open(struct arena *arena)
{
	arena->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena->base == MAP_FAILED)
		abort();
	arena->next = arena->base;
	arena->end = arena->base + ARENA_BYTES;
	POISON(arena->base, ARENA_BYTES);
}

static bool is_of(const struct arena *arena, const void *p)
{
	return (const uint8_t *)p >= arena->base && (const uint8_t *)p < arena->end && arena->base;
}

static size_t class_of(size_t size)
{
	size_t class = N_SMALL;

	if (size <= N_SMALL * ALIGN)
		return size ? (size - 1) / ALIGN : 0;
	while (class < N_CLASSES - 1 && size > (ALIGN * N_SMALL) << (class - N_SMALL + 1))
		class ++;
	return class;
}

static size_t class_size(size_t class)
{
	return class < N_SMALL ? (class + 1) * ALIGN : (ALIGN * N_SMALL) << (class - N_SMALL + 1);
}

RAW static void *arena_take(struct arena *arena, size_t size, size_t align)
{
	size_t class = class_of(size), room = class_size(class);
	struct head *head;
	uint8_t *p;

	if (!arena->base)
		arena_open(arena);
	if (align <= ALIGN && arena->free[class]) {
		p = arena->free[class];
		arena->free[class] = *(void **)(void *)p;
	} else {
		p = (uint8_t *)(((uintptr_t)arena->next + sizeof(*head) + align - 1) & ~(align - 1));
		if (room > (size_t)(arena->end - p))
			abort();
		arena->next = p + room;
	}
	head = (struct head *)(void *)p - 1;
	head->size = size;
	head->class = class;
	UNPOISON(p, size);
	return p;
}

RAW static size_t size_of(const void *p)
{
	return ((const struct head *)p - 1)->size;
}

RAW static void arena_give(struct arena *arena, void *p)
{
	const struct head *head = (const struct head *)p - 1;

	POISON(p, head->size);
	if (!REUSES)
		return;
	*(void **)p = arena->free[head->class];
	arena->free[head->class] = p;
}

static void arena_reset(struct arena *arena)
{
	if (!arena->base)
		return;
	POISON(arena->base, (size_t)(arena->next - arena->base));
	arena->next = arena->base;
	memset(arena->free, 0, sizeof(arena->free));
}

/* The process */

void sim_arena_enter(uint32_t number)
{
	process = &processes[number];
}

void sim_arena_leave(void)
{
	process = NULL;
}

void sim_arena_kill(uint32_t number)
{
	process = NULL;
	arena_reset(&processes[number]);
}

/* Outside */

void *sim_alloc_head(size_t size, size_t n_cleared)
{
	void *p = arena_take(&outside, size, ALIGN);

	memset(p, 0, n_cleared);
	return p;
}

void *sim_alloc(size_t size)
{
	return sim_alloc_head(size, size);
}

void sim_free(void *p)
{
	if (p)
		arena_give(&outside, p);
}

void sim_outside_reset(void)
{
	arena_reset(&outside);
}

/* malloc() and its kin */

void *__wrap_malloc(size_t size)
{
	return process ? arena_take(process, size, ALIGN) : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p;

	if (!process)
		return __real_calloc(n, size);
	p = arena_take(process, n * size, ALIGN);
	memset(p, 0, n * size);
	return p;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return process ? arena_take(process, size, align) : __real_aligned_alloc(align, size);
}

void __wrap_free(void *p)
{
	for (uint32_t i = 0; i < SIM_ARENAS; i++)
		if (is_of(&processes[i], p)) {
			arena_give(&processes[i], p);
			return;
		}
	__real_free(p);
}

void *__wrap_realloc(void *p, size_t size)
{
	void *copy;
	size_t old;

	if (!process)
		return __real_realloc(p, size);
	copy = arena_take(process, size, ALIGN);
	if (!p)
		return copy;
	old = size_of(p);
	memcpy(copy, p, old < size ? old : size);
	arena_give(process, p);
	return copy;
}

char *__wrap_strndup(const char *text, size_t n)
{
	size_t len = strnlen(text, n);
	char *copy;

	if (!process)
		return __real_strndup(text, n);
	copy = arena_take(process, len + 1, ALIGN);
	memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

char *__wrap_strdup(const char *text)
{
	return process ? __wrap_strndup(text, strlen(text)) : __real_strdup(text);
}

int __wrap_asprintf(char **outp, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	*outp = __wrap_malloc((size_t)n + 1);
	va_start(args, format);
	vsnprintf(*outp, (size_t)n + 1, format, args);
	va_end(args);
	return n;
}
