/* One macro for whatever header counts the checks: it is of that header's CHECK. */
#ifndef TRIES_H
#define TRIES_H

/* What is so unless a thread lost its processor just then: five tries, of which one must do. */
#define CHECK_ONE_OF_5(x) \
    do { \
        int tries_left = 5; \
        while (tries_left > 0 && !(x)) tries_left--; \
        CHECK(tries_left > 0 && #x); \
    } while (0)

#endif
