/* What can't be compiled: one line says so, and what to do. WANTED: the header, in quotes. EARLIER:
   it was included without its implementation before. DECLARED: it has no implementation at all. */
#ifdef EARLIER
#include WANTED
#endif
#ifndef DECLARED
#define DLPIPE_IMPLEMENTATION
#endif
#include WANTED
int refused;
