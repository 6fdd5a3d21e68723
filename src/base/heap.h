/*
 * The heap of a server that moves large buffers. By default the C library gives
 * memory back to the kernel as soon as a little of it is free, and each megabyte
 * that goes through us would be mapped, cleared and unmapped again, page by page;
 * that costs more than copying it. So up to HF_HEAP_KEEP bytes stay with us.
 *
 * It also has eight heaps a processor, and each thread that once had much to do,
 * as one that folds a journal, leaves megabytes in one. One heap a processor, and
 * one more, is what threads need not to wait for each other.
 */
#pragma once

#define HF_HEAP_KEEP (64 << 20)

/* At the start of main(), before any thread. */
void hf_heap_prepare(void);

/* Gives all free memory back to the system, for when much was freed. It looks at the whole heap: not for a
 * loop's thread. */
void hf_heap_trim(void);
