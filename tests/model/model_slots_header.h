/* The header with what it takes from the system replaced, for model_slots.h. */
#define calloc arena_take
#define malloc(n) arena_take(1, n)
#define free arena_free
#define pthread_create no_thread
#define pthread_setname_np(thread, name) ((void)(name))
#include "../../dlpipe.h"
#undef free
#undef calloc
#undef malloc
#undef pthread_create
#undef pthread_setname_np
