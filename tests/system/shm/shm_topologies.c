/* needs: parts split */
/* Every topology by worker processes: bytes, resume, seeks, failures, epochs, stops. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/topologies.h"

int main(void) {
    SHM_NEEDS("shm_topologies");
    placement_ = DLP_PLACE_PROCESSES;
    topologies_all(2);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    CHECK(shm_mappings() == 0);
    return test_end("shm_topologies");
}
