#pragma once
#include "order/order.h"
/* ---- an order that visits items in strides: of any epoch, item (from + position * stride) mod n;
   both are keyed by the epoch, and the stride has no common divisor with n ---- */

static uint64_t dlpi_strided_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* key[0]: the stride; key[1]: the first item. */
static void dlpi_strided_begin(dlpi_order *o) {
    const dlpi_range items = dlpi_range_of(o->domain);
    uint64_t stride = 1 + dlpi_below(items, o->key[0]);
    while (dlpi_strided_divisor(o->domain, stride) != 1) stride = stride % o->domain + 1;
    o->key[0] = stride % o->domain;
    o->key[1] = dlpi_below(items, o->key[1]);
}

static void dlpi_strided_block(const dlpi_order *o, uint64_t first, uint32_t count, uint64_t *out) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t at = (uint64_t)(((wide)first * o->key[0] + o->key[1]) % o->domain);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = at;
        at += o->key[0];
        if (at >= o->domain) at -= o->domain;
    }
}

static const dlpi_order_ops dlpi_strided_order = {.name = "DLP_ORDER_STRIDED",
                                                  .once = true,
                                                  .domain = DLPI_DOMAIN_ORDERS + DLP_ORDER_STRIDED,
                                                  .begin = dlpi_strided_begin,
                                                  .block = dlpi_strided_block};
