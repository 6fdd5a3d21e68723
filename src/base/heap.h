/*
 * The heap of a server that moves large buffers. By default the C library gives
 * memory back to the kernel as soon as a little of it is free, and each megabyte
 * that goes through us would be mapped, cleared and unmapped again, page by page;
 * that costs more than copying it. So up to HF_HEAP_KEEP bytes stay with us.
 */
#pragma once

#define HF_HEAP_KEEP (64 << 20)

/* At the start of main(), before any thread. */
void hf_heap_prepare(void);
