#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>ranks      MANY PROCESSES: LAUNCHERS, CORES, RESTARTS

   A launcher starts a program many times, and says in the environment which of them each is. A
   pipe is one of many by rank and world_size of its desc; both 0: it is alone, and reads all. All
   ranks say the same batch_size, the GLOBAL one, and the same seed: each gets its share of each
   batch, and all shares together are the batches of one rank, item for item, in the same order.
   examples/ranks.c does each of these by its environment; examples/mpi_train.c trains with MPI.

   Rank, world and cores   dlp_ranks who;
                           if (dlp_ranks_describe(&who, &err) != DLP_OK) ... err.message
                           .pipe = {.rank = who.rank, .world_size = who.world_size},
                           .num_workers = who.cores,
                           .fetch.workers = {.affinity = who.cpus,
                                             .n_affinity = who.confined ? 0 : who.n_cpus}
     The device of local_rank is this rank's. In a program that never asks, the first start warns
     (desc.log, dlp_pipe_warning) where a launcher has started more than one rank; world_size = 1
     says that it is meant so: this pipe reads all items in every rank, as for validation.
   mpirun                  mpirun -n 8 ./train          Open MPI, MPICH, Intel MPI, MVAPICH
     Open MPI binds each rank: to one core where there are two ranks, to a socket or NUMA node where
     there are more. A rank that is to have workers wants --map-by slot:PE=4, or --bind-to none.
   torchrun                torchrun --no-python --nproc-per-node 8 ./train
   srun                    srun --ntasks-per-node=8 --cpus-per-task=4 ./train
   Notice before the end   #SBATCH --signal=USR1@120 --requeue --open-mode=append
                           srun ./train                 ends with 75 after a checkpoint
                           [ $? -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
     The handler sets a flag. After each step all ranks learn whether any of them has it set, in
     the allreduce that they make anyhow; so all stop after the same step. One of them saves
     dlp_pipe_state with the model: it is the same bytes on every rank. All begin from it again. A
     rank that next keeps waiting is woken by dlp_pipe_stop, which the handler may call: only where
     no other rank can be a step ahead.
   Another number          the same state with another world_size that divides batch_size. What
                           follows is the same items in the same global batches; torchrun
                           --nnodes=1:4 --max-restarts=9, or another mpirun -n.
   Job arrays              sbatch --array=0-15 (any first number and step)
     The tasks run when they like and know nothing of each other: rank is their place
     (SLURM_ARRAY_TASK_ID - _MIN) / _STEP, world_size SLURM_ARRAY_TASK_COUNT, and each has a state
     of its own, for the same number of tasks. No call reads these: an array may be sixteen
     trainings, too.
   Tests run each of these: with Open MPI's mpirun, and with the variables of the others. */

enum { DLP_MAX_CPUS = 1024 };

typedef struct dlp_ranks {
    uint32_t rank, world_size;             /* 0 of 1 where no launcher says anything */
    uint32_t local_rank, local_world_size; /* of those on this node; 0 of 1 where nothing says */
    int32_t cores;    /* 1..n_cpus: how many of cpus count as this rank's own: n_cpus, or less where
                         ranks are confined to the same CPUs, or by its part of the quota of cgroups
                         above it. Workers that compute: as many */
    int32_t n_cpus;   /* 1..DLP_MAX_CPUS */
    int32_t confined; /* 1: the launcher confined this rank to them; 0: its piece of those of all */
    int32_t cpus[DLP_MAX_CPUS]; /* [n_cpus] their numbers, for affinity; neighbours share a core or
                                   a socket. Confined: other ranks may have the same; the system
                                   places workers among them better than affinity would */
} dlp_ranks;

/* Rank and world size as the launcher of a parallel job says them in the environment, for those two
   fields of dlp_pipe_desc. In this order: torchrun (RANK, WORLD_SIZE), Open MPI
   (OMPI_COMM_WORLD_RANK, _SIZE), MVAPICH (MV2_COMM_WORLD_RANK, _SIZE), MPICH and Intel MPI
   (PMI_RANK, PMI_SIZE), Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS).
   rank: 0..world_size - 1; world_size: 1..2^31 - 1; written on success; 0 of 1 where no launcher
   says anything; err: may be NULL - returns DLP_OK; DLP_ERR_ARG: a pair that is half set, no
   number, or rank not below world_size; another launcher says another rank of as many (torchrun may
   number as it likes: it sets TORCHELASTIC_RUN_ID); err->field names the variable - any thread,
   while none changes the environment. */
DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err);

/* The same, and place and CPUs on this node, out of: LOCAL_RANK, LOCAL_WORLD_SIZE;
   OMPI_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE; MV2_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE; MPI_LOCALRANKID,
   MPI_LOCALNRANKS; SLURM_LOCALID with SLURM_STEP_TASKS_PER_NODE, or else SLURM_TASKS_PER_NODE, or
   SLURM_NTASKS_PER_NODE ("4", "4(x2),1": of node SLURM_NODEID). Of the launcher that says the rank,
   or else of another that says the same.
   A rank whose affinity mask (the calling thread's) is another than its launcher's is confined: the
   CPUs of the mask are its own. Else the CPUs of the mask are shared out by local_rank, in pieces
   that differ by one at most; where there are fewer than ranks, one CPU has several. The launcher
   is the nearest ancestor that had not this rank in its environment; where none is seen (a
   container), a mask with fewer CPUs than are online confines.
   out: written on success; err: may be NULL - returns as dlp_ranks_from_env; DLP_ERR_ARG, too:
   out is NULL; a local pair that is half set, no number (or list), or not below one another, more
   ranks here than world_size - any thread, while none changes the environment - reads /proc and
   /sys; allocates, and frees. */
DLPDEF int dlp_ranks_describe(dlp_ranks *out, dlp_error *err);
