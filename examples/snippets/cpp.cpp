// C++17: examples/cpp/dlpipe.hpp, one more file. What goes wrong is thrown.
//
// c++ -std=c++17 -O2 -I. -Iexamples/cpp examples/snippets/cpp.cpp dlpipe.o -lpthread
#include "dlpipe.hpp"
#include <cstdio>

int main() {
    double sum = 0;
    dlpipe::table t;
    t.list("items", 1000)->list.shuffle = 1; // the arrow gives the dlp_node
    t.fetch("read", {dlpipe::field<float>("x", {3})}, [](dlpipe::item item) {
         for (float &x : item.field<float>(0)) x = float(item.index());
     }).workers(4);
    t.batch("batch", 64);
    dlpipe::pipe pipe = t.open();
    for (dlpipe::batch &batch : pipe)
        for (float x : batch.field<float>("x").all()) sum += x;
    std::printf("the sum is %g\n", sum);
    return sum == 3 * 999 * 1000 / 2 ? 0 : 1; // each item once, with three numbers
}
