// The C++ of README.md, in the function that the text around it stands for (tests/compile/readme).
#include "dlpipe.hpp"

#include <cstdio>

static double sum;

static void step(dlpipe::span<float> x) {
    for (float value : x) sum += value;
}

int main() {
#include "cpp.inc"
    if (sum == 3 * 999 * 1000 / 2) return 0; // each of the 1000 items once, three numbers in each
    std::printf("the sum is %g\n", sum);
    return 1;
}
