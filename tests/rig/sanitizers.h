/* Is this program compiled with a sanitizer? The thread sanitizer follows no fork of a program that
   has threads, and no other process: what one process orders for another is a race to it. */
#ifndef RIG_SANITIZERS_H
#define RIG_SANITIZERS_H

#if defined(__SANITIZE_THREAD__)
#define RIG_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RIG_TSAN 1
#endif
#endif
#ifndef RIG_TSAN
#define RIG_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define RIG_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RIG_ASAN 1
#endif
#endif
#ifndef RIG_ASAN
#define RIG_ASAN 0
#endif

#endif
