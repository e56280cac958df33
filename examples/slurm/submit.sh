#!/usr/bin/env bash
# Build a store on a Slurm cluster: each part is one task of an array, and a last job publishes.
#
#   CORPUS=/data/corpus OUT=/data/store TOKENIZER=tokenizer.json PARTS=64 ./submit.sh
#
# A task that dies is requeued and goes on after its last finished shard. Run the script again after
# a failure: parts that are done return at once. The store has the same bytes as
# `tokenloom build ... --stretches 64` on one machine.
set -euo pipefail

PARTS=${PARTS:-64}
CORES=${CORES:-4}
BUILD=(tokenloom build "$CORPUS" --out "$OUT" --tokenizer "$TOKENIZER" --quiet)
COMMAND=$(printf '%q ' "${BUILD[@]}")

ARRAY=$(sbatch --parsable --job-name=tokenloom --requeue --cpus-per-task="$CORES" \
    --array="1-$PARTS" \
    --wrap="$COMMAND --workers $CORES --part \$SLURM_ARRAY_TASK_ID/$PARTS")

sbatch --parsable --job-name=tokenloom-finish --dependency="afterok:$ARRAY" \
    --wrap="$COMMAND --finish"
