/* The pins of tests/unit/order/order.c with plain C only: no vectors. */
/* own: hook: another one, without vectors */
#define DLPIPE_NO_SIMD
#define DLPIPE_IMPLEMENTATION
#define ORDER_PINS_ONLY 1
#include "order.c"
