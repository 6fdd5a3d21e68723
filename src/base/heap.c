#include "base/heap.h"

#include <malloc.h>
#include <unistd.h>

#define LARGEST (4 << 20) /* larger blocks get a mapping of their own */

void hf_heap_prepare(void)
{
	long n_processors = sysconf(_SC_NPROCESSORS_ONLN);

	mallopt(M_ARENA_MAX, n_processors > 0 ? (int)n_processors + 1 : 2);
	mallopt(M_MMAP_THRESHOLD, LARGEST);
	mallopt(M_TRIM_THRESHOLD, HF_HEAP_RETAIN);
}

void hf_heap_trim(void)
{
	malloc_trim(0);
}
