/* The pins of tests/unit/order/order.c with plain C only: no vectors. */
#define DLPIPE_NO_SIMD
#define ORDER_PINS_ONLY 1
#include "order.c"
