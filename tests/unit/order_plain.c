/* The pins of tests/unit/order.c with plain C only: no vectors, no 128-bit integers. */
#define DLPIPE_NO_SIMD
#define DLPIPE_NO_INT128
#define ORDER_PINS_ONLY 1
#include "order.c"
