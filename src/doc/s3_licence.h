#pragma once
/* ---------------------------------------------------------------------------------------------
   >>s3-history           VERSIONS
   0.1.0   The first version. Its number is always that of dlpipe.h.
   0.2.0   As dlpipe.h.

   >>s3-licence           MIT
   The licence is that of dlpipe.h. */
