/* How much of the cores others than this process have had. */
#ifndef OTHERS_H
#define OTHERS_H

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Seconds that others than this process have had of the cores, at any priority, other virtual
   machines of the host included. */
static inline double test_others_s(void) {
    double user = 0, nice = 0, kernel = 0, stolen = 0;
    FILE *f = fopen("/proc/stat", "r");
    if (f == NULL ||
        fscanf(f, "cpu %lf %lf %lf %*f %*f %*f %*f %lf", &user, &nice, &kernel, &stolen) != 4)
        user = 0;
    if (f != NULL) fclose(f);
    return (user + nice + kernel + stolen) / (double)sysconf(_SC_CLK_TCK) -
           (double)clock() / CLOCKS_PER_SEC;
}

#endif
