#pragma once
/* tests: system/core/pipe_deadline, system/report/predict, unit/queue/queue_wait */
#include "base/word_wait.h"
/* ---- how long a thread used a core, and waited for one ---- */

#define DLPI_CPU_PROBE_NS UINT64_C(5000000)

/* A thread's use of the cores, as it was noted last. A thread that does other work too is probed
   every 5 ms: one stretch of the work is measured. The work until the next probe is taken to be
   like it. */
typedef struct dlpi_cpu {
    uint64_t noted_ns, used_ns, waited_ns; /* time of the last note; the sums at that time */
    uint64_t sleeps; /* 1 + sleeps of the thread when the probe began; 0: no probe */
    double used_share, waited_share; /* parts of the time of the last probe, 0..1 */
} dlpi_cpu;

/* Read how long the calling thread has used a core. If `file` is set, also read from a file how
   long the thread was ready to run while others had the cores. A field that the system does not
   tell stays as it is. */
static void dlpi_cpu_read(dlpi_cpu *cpu, bool file) {
    dlpi_thread_times(&cpu->used_ns, file ? &cpu->waited_ns : NULL, NULL);
}

/* Return how often the calling thread has slept; `untold` if the system does not tell. */
static uint64_t dlpi_cpu_sleeps(uint64_t untold) {
    uint64_t sleeps = untold;
    dlpi_thread_times(NULL, NULL, &sleeps);
    return sleeps;
}

/* Begin a probe. Returns false if it is too early for one. */
static bool dlpi_cpu_probe_begin(dlpi_cpu *cpu, uint64_t now) {
    if (now - cpu->noted_ns < DLPI_CPU_PROBE_NS) return false;
    cpu->noted_ns = now;
    cpu->sleeps = dlpi_cpu_sleeps(0) + 1;
    dlpi_cpu_read(cpu, true);
    return true;
}

/* If a probe is under way, forget it, and let the next one begin at once. */
static void dlpi_cpu_probe_drop(dlpi_cpu *cpu) {
    if (cpu->sleeps != 0) cpu->noted_ns = 0;
    cpu->sleeps = 0;
}

/* If a probe is under way, end it. ns: the length of the measured work, more than 0. A thread that
   never slept had a core, or waited for one, all the time; many kernels tell no more. */
static void dlpi_cpu_probe_end(dlpi_cpu *cpu, uint64_t ns) {
    const dlpi_cpu last = *cpu;
    uint64_t used, waited;
    if (cpu->sleeps == 0) return;
    dlpi_cpu_read(cpu, true);
    used = cpu->used_ns - last.used_ns;
    if (used > ns) used = ns;
    waited = cpu->waited_ns - last.waited_ns;
    if (waited > ns - used || dlpi_cpu_sleeps(1) + 1 == cpu->sleeps) waited = ns - used;
    cpu->used_share = (double)used / (double)ns;
    cpu->waited_share = (double)waited / (double)ns;
    cpu->sleeps = 0;
}
