/* Small words that C lacks. */
#pragma once

#include <stddef.h>

#define HF_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define HF_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define HF_MAX(a, b)     ((a) > (b) ? (a) : (b))

/* The object that embeds @member at @ptr. */
#define hf_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define HF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define HF_UNUSED            __attribute__((unused))
#define HF_FALLTHROUGH       __attribute__((fallthrough))
#define HF_NOINLINE          __attribute__((noinline)) /* for a rare part, out of the way of the common one */
#define HF_ALWAYS_INLINE     inline __attribute__((always_inline)) /* where a caller's constants matter */
/* For functions that are rarely called; the compiler moves the branches to them out of the way. */
#define HF_COLD        __attribute__((cold))
#define HF_LIKELY(x)   __builtin_expect(!!(x), 1)
#define HF_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Is a sanitizer compiled in that needs system calls of its own? */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HF_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HF_SANITIZED 1
#endif
#endif
