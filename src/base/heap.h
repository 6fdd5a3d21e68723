/*
 * Settings of the heap for a server that moves large buffers. By default the C
 * library returns free memory to the kernel early, and each megabyte in transit
 * would be mapped, cleared and unmapped again, page by page; that costs more
 * than copying it. So the process retains up to HF_HEAP_RETAIN free bytes.
 *
 * The C library also uses eight heaps for each processor, and a thread that was
 * busy once, for example to fold a journal, leaves megabytes in one of them.
 * One heap for each processor and one more are enough to avoid contention.
 */
#pragma once

#define HF_HEAP_RETAIN (64 << 20)

/* Call at the start of main(), before any thread. */
void hf_heap_prepare(void);

/* Returns all free memory to the system, after much was freed. It walks the whole heap: do not call it on a
 * loop's thread. */
void hf_heap_trim(void);
