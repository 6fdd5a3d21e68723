#include "base/heap.h"

#include <malloc.h>

#define LARGEST (4 << 20) /* of what comes from the heap; more is mapped by itself */

void hf_heap_prepare(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGEST);
	mallopt(M_TRIM_THRESHOLD, HF_HEAP_KEEP);
}
