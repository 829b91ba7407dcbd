#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>devices    GPUS: CUDA, OPENCL
   Ready-made devices for the transfer stage. DLPIPE_CUDA, DLPIPE_OPENCL [impl] compile them in, and
   no toolkit is needed: the libraries are looked for when a device is made. A device serves one
   pipe at a time, one after another.

     dlp_device gpu;
     if (dlp_device_cuda(&gpu, NULL, &err) != DLP_OK) ...     // then loader_desc.device = &gpu
     dlp_device_describe(&gpu, &info);                        // info.queue: the copies' stream
     ... the pipe, until it is closed and its last batch released ...
     dlp_device_close(&gpu);

   A batch that next lends has arrived: nothing need wait for its copy. Release is the other way
   round: the next copy must not overwrite what kernels still read. Choose one of these:
   * the kernels are done (their stream was synchronised): dlp_pipe_release;
   * dlp_pipe_release_after: the buffer is written again after what a stream was given until then;
   * desc.consumer: the same for all batches of the pipe, with dlp_pipe_release (and DLPack);
   * desc.stream or desc.queue is the one the kernels run on: they and copies then take turns.
   No thread waits in any of the last three.

   CUDA pins the slots once, in start (cuMemHostRegister), so that copies run beside the host; where
   that is refused, copies are pageable: slower, and the copying thread takes part. OpenCL has no
   such call; it copies from ordinary memory. A field of a batch has, for data, the CUdeviceptr or
   the cl_mem (one per field and buffer, as large as the field can become); of a view into a chunk,
   the CUdeviceptr of its first row, or the chunk's cl_mem and byte_offset.

   CUDA's driver makes threads, and worker processes are forked before there are any (dlpipe_shm.h).
   So make the device with `later`, and open the pipe with `later`, which forks. Only
   then use CUDA: make a context and streams, write them into the desc, and call dlp_pipe_start.
   Before that call dlp_device_describe knows only the kind. DLP_PRELOAD_AUTO wants limit_bytes.

   `make gpu` measured this on one H100 and one H200, each with 16 cores:
   * Pinned slots, batches of 1 MiB and more: 44 to 55 GB/s. That is 92 to 100 % of a loop that only
     calls cuMemcpyHtoDAsync. Pageable: 4 to 13 GB/s.
   * For each batch a kernel that takes as long as the copy of a batch. With device_buffers =
     max_held + 2 both go on at once. A batch then takes 1.00 to 1.03 times the longer of the two,
     from batches of 1 MiB on. By default there is one buffer less. Each copy then waits for a
     kernel, and each kernel waits for a copy. A batch of 64 MiB takes 1.01 to 1.05 times as long,
     one of 8 MiB 1.03 to 1.14, one of 1 MiB 1.3 to 2.1.
   * Batches of 64 items of 784 bytes: 140,000 a second. With 4 buffers and prefetch_factor 4 there
     are 180,000, without a transfer 480,000. The loop makes 290,000 copies of that size. */

typedef struct dlp_cuda_desc {
    int32_t device;       /* ordinal; not read if context is given; 0: the first */
    int32_t has_consumer; /* 1: consumer is one, also if it is NULL (the default stream) */
    void *context;        /* CUcontext, borrowed; NULL: the device's primary one (that of the
                               runtime API), retained until close */
    void *stream;         /* CUstream for the copies, borrowed; NULL: one of its own */
    void *consumer;       /* CUstream whose work reads the batches, borrowed: copies into a buffer
                               wait for all that it was given before. Not to be captured */
    const char *library;  /* NULL: "libcuda.so.1" */
    int32_t later;        /* 1: the start of the first pipe calls the driver for the first time,
                               and reads the desc, which is borrowed until then. See above */
} dlp_cuda_desc;

typedef struct dlp_opencl_desc {
    int32_t device;      /* of all devices of all platforms, in their order, or, if it is given,
                               of context's; not read with queue; 0: the first */
    void *context;       /* cl_context, retained until close; NULL: queue's, or one of its own */
    void *queue;         /* cl_command_queue for the copies, likewise; NULL: one of its own */
    void *consumer;      /* cl_command_queue whose work reads the batches, likewise: copies into
                               a buffer wait for all that it was given before; NULL: none */
    const char *library; /* NULL: "libOpenCL.so.1" */
} dlp_opencl_desc;

/* Make a device out of a GPU.
   out: to be closed; desc: NULL is {0}, copied; err: written on failure, may be NULL - returns
   DLP_OK; DLP_ERR_UNSUPPORTED: not compiled in, no driver, or one without devices; DLP_ERR_ARG:
   there is no such device; DLP_ERR_DEVICE: another call failed; DLP_ERR_MEMORY. Messages name the
   call, its error and the number; so do those of pipes whose device fails - any thread - allocates,
   and waits for the driver. Libraries stay loaded. */
DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err);
DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err);

/* What a device is made of, to enqueue work beside its copies. */
typedef struct dlp_device_info {
    const char *kind;  /* "cuda", "opencl" */
    char name[128];    /* what the driver calls it */
    int32_t device;    /* ordinal (cuda) */
    int32_t pinned;    /* 1: the slots of the pipe that uses it are pinned; since start */
    void *context;     /* CUcontext, cl_context */
    void *queue;       /* CUstream, cl_command_queue of the copies */
    void *device_id;   /* cl_device_id (opencl) */
    char unpinned[96]; /* why they are not: the call and its error, or "" */
} dlp_device_info;

/* Tell what a device is made of.
   device: of dlp_device_cuda or _opencl; out: written on success - returns DLP_OK, or DLP_ERR_ARG
   (of another make) - while no start or close of its pipe is under way - does not wait. */
DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out);

/* Free what dlp_device_cuda or _opencl made.
   device: zeroed; zero already: DLP_OK - returns DLP_OK, DLP_ERR_ARG (of another make),
   DLP_ERR_BUSY (a pipe uses it, or batches of one are held: nothing is freed) - any thread - may
   wait for the driver. */
DLPDEF int dlp_device_close(dlp_device *device);

/* Give a batch back while work that reads it is still queued: its buffer is written again only
   after all that stream was given until now.
   p, batch: as for dlp_pipe_release; stream: CUstream (NULL: the default stream), or
   cl_command_queue, of the device's context; err: written on failure, may be NULL - returns DLP_OK;
   DLP_ERR_UNSUPPORTED: the pipe has no such device; DLP_ERR_DEVICE: then the batch is still held;
   else what dlp_pipe_release returns - consumer - does not wait for the work, but after close the
   last release does. */
DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream, dlp_error *err);
