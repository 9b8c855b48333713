#!/bin/bash
# One training on all nodes of a SLURM job: sbatch deploy/slurm.sh
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@180
set -u
export RUN="${RUN:-runs/cartpole}" NODES="${NODES:-$((SLURM_NNODES - 1))}"
here="${SLURM_SUBMIT_DIR:-.}/deploy"

# A token of the job, without which Ray's ports would be open to everyone on the network.
RAY_AUTH_TOKEN="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

# Ray's head on the first node, its workers on the others.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=6379 --num-cpus=0 --block &
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
    bash -c "until ray start --address=$head:6379 --block; do sleep 1; done" &
export RAY_ADDRESS="$head:6379"

# Wait until all have joined, whether that takes seconds or minutes.
until srun --overlap --nodes=1 --ntasks=1 -w "$head" python -c \
    "import ray, sys; ray.init(logging_level='ERROR'); sys.exit(sum(n['Alive'] for n in ray.nodes()) < $SLURM_NNODES)" \
    ; do sleep 2; done

# Three minutes before the time is over the training gets SIGUSR1: it saves, and the next job goes on from there.
srun --overlap --nodes=1 --ntasks=1 -w "$head" bash "$here/train.sh" &
training=$!
late=
trap 'late=yes; kill -USR1 $training' USR1
wait "$training"
code=$?
[ "$code" -lt 128 ] || { wait "$training"; code=$?; } # the signal ended the first wait
[ -z "$late" ] || [ "$code" -ne 130 ] || sbatch "$here/slurm.sh"
exit "$code"
