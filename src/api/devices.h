/* needs: transfer */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>devices    GPUS: CUDA, OPENCL
   Ready-made devices for the transfer stage. DLPIPE_CUDA and DLPIPE_OPENCL [impl] compile them in.
   No toolkit is needed: the libraries are loaded when a device is made. A device serves one pipe at
   a time, one after another.

     dlp_device gpu;
     if (dlp_device_cuda(&gpu, NULL, &err) != DLP_OK) ...     // then loader_desc.device = &gpu
     dlp_device_describe(&gpu, &info);                        // info.queue: the copies' stream
     ... the pipe, until it is closed and its last batch released ...
     dlp_device_close(&gpu);

   A batch that next lends has arrived on the device: nothing needs to wait for its copy. Release is
   different: the next copy must not overwrite a buffer that kernels still read. Choose one of
   these:
   * the kernels are done (their stream was synchronised): dlp_pipe_release.
   * dlp_pipe_release_after: the buffer is written again after the work that the stream has now.
   * desc.consumer: likewise for all batches of the pipe, with dlp_pipe_release (and DLPack).
   * desc.stream or desc.queue is the stream of the kernels: kernels and copies then take turns.
   No thread waits in any of the last three.

   CUDA pins the slots once, in start (cuMemHostRegister), so that copies run beside the host. If
   that is refused, copies are pageable: they are slower and keep the copying thread busy. OpenCL
   has no such call; it copies from ordinary memory. data of a batch's field is the CUdeviceptr or
   the cl_mem. There is one cl_mem per field and buffer, as large as the field can become. For a
   view into a chunk, data is the CUdeviceptr of its first row, or the chunk's cl_mem with
   byte_offset.

   The CUDA driver makes threads, and worker processes must be forked before that (dlpipe_shm.h). So
   make the device with `later`, and open the pipe with `later`, which forks. Only then use CUDA:
   make a context and streams, write them into the desc, and call dlp_pipe_start. Before that call
   dlp_device_describe knows only the kind. DLP_PRELOAD_AUTO then needs limit_bytes.

   `make gpu` measured this on one H100 and one H200, each with 16 cores:
   * Pinned slots, batches of 1 MiB and more: 44 to 55 GB/s. That is 92 to 100 % of a loop that only
     calls cuMemcpyHtoDAsync. Pageable slots: 4 to 13 GB/s.
   * Each batch with a kernel that takes as long as the copy of a batch. With device_buffers =
     max_held + 2 both go on at once. A batch then takes 1.00 to 1.03 times the longer of the two,
     from batches of 1 MiB on. By default there is one buffer less. Each copy then waits for a
     kernel, and each kernel waits for a copy. A batch of 64 MiB takes 1.01 to 1.05 times as long,
     one of 8 MiB 1.03 to 1.14, one of 1 MiB 1.3 to 2.1.
   * Batches of 64 items of 784 bytes: 140,000 a second. With 4 buffers and prefetch_factor 4 there
     are 180,000, without a transfer 480,000. The loop makes 290,000 copies of that size. */

typedef struct dlp_cuda_desc {
    int32_t device;       /* ordinal of the GPU; 0: the first; not read if context is given */
    int32_t has_consumer; /* 1: consumer is given, also if it is NULL (the default stream) */
    void *context;        /* CUcontext, borrowed. NULL: the primary context of the device, which the
                               runtime API uses; it is retained until close */
    void *stream;         /* CUstream for the copies, borrowed; NULL: a stream of its own */
    void *consumer;       /* CUstream whose work reads the batches, borrowed. A copy into a buffer
                               waits for all work that the stream was given before. It must not be
                               captured */
    const char *library;  /* library of the driver; NULL: "libcuda.so.1" */
    int32_t later;        /* 1: the start of the first pipe makes the first call to the driver, and
                               reads the desc, which is borrowed until then. See above. 0:
                               dlp_device_cuda makes that call */
} dlp_cuda_desc;

typedef struct dlp_opencl_desc {
    int32_t device;      /* number of the device among all devices of all platforms or, if context
                               is given, of context; 0: the first; not read if queue is given */
    void *context;       /* cl_context, retained until close. NULL: the context of queue, or a
                            context of its own */
    void *queue;         /* cl_command_queue for the copies, retained until close; NULL: a queue of
                            its own */
    void *consumer;      /* cl_command_queue whose work reads the batches, retained until close. A
                               copy into a buffer waits for all work that the queue was given
                               before. NULL: none */
    const char *library; /* library of the driver; NULL: "libOpenCL.so.1" */
} dlp_opencl_desc;

/* Make a device out of a GPU.
   out: close it with dlp_device_close. desc: copied, but see `later`; NULL means {0}. err: written
   on failure; may be NULL. Returns DLP_OK, or:
     DLP_ERR_UNSUPPORTED   it is not compiled in, there is no driver, or the driver has no devices
     DLP_ERR_ARG           there is no such device
     DLP_ERR_DEVICE        another call failed
     DLP_ERR_MEMORY
   Messages name the call, its error and the number. So do the messages of a pipe whose device
   fails. Any thread. Allocates, and waits for the driver. Libraries stay loaded. */
DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err);
DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err);

/* Driver objects of a device, for work that you enqueue beside its copies. */
typedef struct dlp_device_info {
    const char *kind;  /* "cuda" or "opencl" */
    char name[128];    /* name of the device in the driver */
    int32_t device;    /* ordinal (cuda) */
    int32_t pinned;    /* 1: the slots of the pipe that uses the device are pinned; set by start */
    void *context;     /* CUcontext or cl_context */
    void *queue;       /* CUstream or cl_command_queue of the copies */
    void *device_id;   /* cl_device_id (opencl) */
    char unpinned[96]; /* why slots are not pinned: the call and its error, or "" */
} dlp_device_info;

/* Write the driver objects of a device to *out.
   device: made by dlp_device_cuda or _opencl. out: written on success. Returns DLP_OK, or
   DLP_ERR_ARG (another call made the device). Any thread, while no start or close of the device's
   pipe runs. Does not wait. */
DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out);

/* Free a device that dlp_device_cuda or _opencl made.
   device: zeroed. Returns DLP_OK, also if device is NULL or zero already; DLP_ERR_ARG (another call
   made the device). DLP_ERR_BUSY: a pipe uses the device, or batches of a pipe are held; nothing is
   freed. Any thread. May wait for the driver. */
DLPDEF int dlp_device_close(dlp_device *device);

/* Give a batch back while queued work still reads it. Its buffer is written again only after all
   work that stream was given up to this call.
   p, batch: as for dlp_pipe_release. stream: a CUstream (NULL: the default stream) or a
   cl_command_queue (not NULL), of the device's context. err: written on failure; may be NULL.
   Returns DLP_OK; DLP_ERR_UNSUPPORTED (the pipe has no such device); DLP_ERR_DEVICE (the batch is
   still held); else as dlp_pipe_release. Consumer. Does not wait for the work. After close the last
   release waits for it. */
DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream, dlp_error *err);
