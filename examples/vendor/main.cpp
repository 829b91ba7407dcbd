// The same in C++, by dlpipe.hpp. The implementation stays in dlpipe.c, which is C.
#include "dlpipe.hpp"
#include <iostream>

int main() {
    dlpipe::loader make(
        dlpipe::dataset(100, {dlpipe::field<unsigned long long>("x")}, [](dlpipe::item item) {
            item.field<unsigned long long>(0)[0] = item.index() * 2;
        }));
    make.desc.batch_size = 10;
    make.desc.num_workers = 2;
    make.desc.shuffle = 1;
    dlpipe::pipe pipe = make.open();
    unsigned long long sum = 0;
    for (dlpipe::batch &b : pipe)
        for (unsigned long long x : b.field<unsigned long long>("x").all()) sum += x;
    std::cout << "dlpipe " << dlp_version() << ": the sum is " << sum << "\n";
    return sum == 9900 ? 0 : 1;
}
