/* What can't be compiled: one line says so, and what to do. WANTED: the header, in quotes. EARLIER:
   it was included without its implementation before. */
#ifdef EARLIER
#include WANTED
#endif
#define DLPIPE_IMPLEMENTATION
#include WANTED
int refused;
