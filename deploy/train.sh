#!/bin/bash
# Begin a training on the Ray cluster of this machine, or go on with it. Change the second command to yours.
#
#   RUN    directory of the run on a shared file system, or a URL such as s3://bucket/cartpole
#   NODES  number of nodes that step lanes
set -eu
: "${RUN:?}" "${NODES:=all}"
if [ -f "$RUN/config.json" ] || { [[ $RUN == *://* ]] && penstock runs "$RUN" > /dev/null 2>&1; }; then
    exec penstock resume "$RUN" --nodes "$NODES"
fi
exec penstock train appo --env CartPole-v1 --total-steps 10000000 --num-workers 4 \
    --backend ray --address auto --nodes "$NODES" --run-dir "$RUN" --upload-timeout 60
