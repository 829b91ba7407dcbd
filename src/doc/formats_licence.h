#pragma once
/* ---------------------------------------------------------------------------------------------
   >>formats-history      VERSIONS
   0.1.0   The first version. Its number is always that of dlpipe.h.

   >>formats-licence      MIT
   The licence is that of dlpipe.h. */
