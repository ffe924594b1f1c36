#!/bin/sh
# Spark runs this where an executor or a standalone worker starts, and reads which GPUs there are:
# {"name": "gpu", "addresses": ["0", "1"]}
indexes=$(nvidia-smi --query-gpu=index --format=csv,noheader) || exit 1
separator=
printf '{"name": "gpu", "addresses": ['
for index in $indexes; do
    printf '%s"%s"' "$separator" "$index"
    separator=', '
done
printf ']}\n'
