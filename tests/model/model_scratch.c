/* needs: scratch */
/* model_slots.c with a scratch stage between fetch and the item map: who takes a cell, gives it to
   the row it claims, leaves it, waits for one, dies with one. */
#define MODEL_SCRATCH
#include "model_slots.c"
