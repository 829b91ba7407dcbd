/* needs: ranks */
#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>ranks      MANY PROCESSES: LAUNCHERS, CORES, RESTARTS

   A launcher starts a program many times, and its environment tells each process its rank. rank and
   world_size of the desc make a pipe one of many. If both are 0, the pipe is alone and reads all
   items. All ranks give the same batch_size, which is the GLOBAL one, and the same seed. Each rank
   gets its share of each batch. All shares together are the batches of one rank, item for item, in
   the same order. examples/ranks.c runs each of these cases by its environment;
   examples/mpi_train.c trains with MPI.

   Rank, world and cores   dlp_ranks who;
                           if (dlp_ranks_describe(&who, &err) != DLP_OK) ... err.message
                           .pipe = {.rank = who.rank, .world_size = who.world_size},
                           .num_workers = who.cores,
                           .workers = {.affinity = who.cpus,
                                       .n_affinity = who.confined ? 0 : who.n_cpus}
     This rank uses the device of number local_rank. If a launcher has started more than one rank
     and the desc gives no rank, the first start warns (desc.log, dlp_pipe_warning). world_size = 1
     says that it is meant so: this pipe reads all items in every rank, as for validation.
   mpirun                  mpirun -n 8 ./train          Open MPI, MPICH, Intel MPI, MVAPICH
     Open MPI binds each rank: to one core if there are two ranks, to a socket or NUMA node if there
     are more. A rank with workers needs --map-by slot:PE=4, or --bind-to none.
   torchrun                torchrun --no-python --nproc-per-node 8 ./train
   srun                    srun --ntasks-per-node=8 --cpus-per-task=4 ./train
   Notice before the end   #SBATCH --signal=USR1@120 --requeue --open-mode=append
                           srun ./train                 ends with 75 after a checkpoint
                           [ $? -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
     The signal handler sets a flag. After each step all ranks learn whether any rank has it set, in
     the allreduce that they make anyhow. So all ranks stop after the same step. One of them saves
     dlp_pipe_state with the model: the state has the same bytes on every rank. All ranks begin from
     it again. dlp_pipe_stop wakes a rank that waits in next. The handler may call it only if no
     other rank can be a step ahead.
   Another number          the same state with another world_size, which must divide batch_size. The
                           same items follow, in the same global batches; torchrun --nnodes=1:4
                           --max-restarts=9, or another mpirun -n.
   Job arrays              sbatch --array=0-15 (any first number and step)
     The tasks run at any time and know nothing of each other. rank is the task's place
     (SLURM_ARRAY_TASK_ID - _MIN) / _STEP, and world_size is SLURM_ARRAY_TASK_COUNT. Each task has
     its own state, which needs the same number of tasks. No call reads these variables: an array
     may also be sixteen trainings.
   Tests run each of these cases: with Open MPI's mpirun, and with the variables of the others. */

enum { DLP_MAX_CPUS = 1024 };

typedef struct dlp_ranks {
    uint32_t rank, world_size;             /* 0 of 1 if there is no launcher */
    uint32_t local_rank, local_world_size; /* place among the ranks of this node, and their number;
                                  0 of 1 if unknown */
    int32_t cores;    /* number of CPUs that count as this rank's own, 1..n_cpus. It is less than
                         n_cpus if ranks are confined to the same CPUs, or if the quota of cgroups
                         gives this rank less. Use as many workers that compute */
    int32_t n_cpus;   /* number of cpus, 1..DLP_MAX_CPUS */
    int32_t confined; /* 1: the launcher confined this rank to cpus; 0: cpus are its share of all
                         CPUs */
    int32_t cpus[DLP_MAX_CPUS]; /* [n_cpus] numbers of CPUs, for affinity; neighbours share a core
                                   or a socket. If confined is 1, other ranks may have the same
                                   CPUs. The system then places workers better than affinity
                                   would */
} dlp_ranks;

/* Read rank and world size from the environment, for these two fields of dlp_pipe_desc. The
   launchers of parallel jobs are tried in this order: torchrun (RANK, WORLD_SIZE), Open MPI
   (OMPI_COMM_WORLD_RANK, _SIZE), MVAPICH (MV2_COMM_WORLD_RANK, _SIZE), MPICH and Intel MPI
   (PMI_RANK, PMI_SIZE), Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS).
   rank: 0..world_size - 1. world_size: 1..2^31 - 1. Both are written on success; 0 of 1 if there is
   no launcher. err: may be NULL; err->field names the variable. Returns DLP_OK, or DLP_ERR_ARG:
     rank or world_size is NULL
     only one variable of a pair is set, one is no number, or rank is not below world_size
     another launcher gives another rank of as many. torchrun may number as it likes, if
     TORCHELASTIC_RUN_ID is set
   Any thread, while no thread changes the environment. */
DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err);

/* Read rank and world size as dlp_ranks_from_env does, and find this rank's place and CPUs on its
   node.
   The place is read from these variables: LOCAL_RANK, LOCAL_WORLD_SIZE; OMPI_COMM_WORLD_LOCAL_RANK,
   _LOCAL_SIZE; MV2_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE; MPI_LOCALRANKID, MPI_LOCALNRANKS;
   SLURM_LOCALID. With SLURM_LOCALID goes the first of SLURM_STEP_TASKS_PER_NODE,
   SLURM_TASKS_PER_NODE and SLURM_NTASKS_PER_NODE that is set ("4", "4(x2),1": of node
   SLURM_NODEID). The launcher that gives the rank gives the place, or else another one that gives
   the same rank and world size.
   A rank is confined if the affinity mask of the calling thread differs from the mask of its
   launcher. The CPUs of the mask are then its own. Else local_rank shares out the CPUs of the mask,
   in pieces that differ by at most one CPU. If there are fewer CPUs than ranks, several ranks have
   one CPU. The launcher is the nearest ancestor process without this rank in its environment. If
   none is seen (in a container), a mask with fewer CPUs than are online confines.
   out: written on success. err: may be NULL. Returns as dlp_ranks_from_env. DLP_ERR_ARG also if out
   is NULL, if only one local variable is set, or is no number (or list). It is returned too if the
   local rank is not below the local size, or the local size is above world_size. Any thread, while
   no thread changes the environment. Reads /proc and /sys. Allocates, and frees. */
DLPDEF int dlp_ranks_describe(dlp_ranks *out, dlp_error *err);
