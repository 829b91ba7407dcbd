/* needs: parts split */
/* Every topology, inline and by threads: bytes, resume, seeks, failures, epochs, stops. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/topologies.h"

int main(void) {
    topologies_all(0);
    topologies_all(1);
    topologies_all(3);
    return test_end("topologies");
}
