#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# selftest.sh CONFORMANCE VECTORS: each way of damaging a directory of vectors must make conformance
# fail with exit status 1, name the file (and the line where there is one), and not crash; and so
# must a daemon that is missing or ends at once. Uneven shards, which the recorded vectors lack,
# must pass.
set -eu
conformance=$1
vectors=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=$work/vectors
status=0

# fresh INDEX...: a copy of the vectors with only these indexes in it.
fresh() {
    rm -rf "$dir"
    cp -R "$vectors" "$dir"
    chmod -R u+w "$dir"
    rm "$dir"/*.tsv
    for index in "$@"; do
        cp "$vectors/$index" "$dir"
    done
    chmod u+w "$dir"/*
}

# expect NAME FAILURES TEXT: runs on $dir; FAILURES is a pattern for the last line's count.
expect() {
    rc=0
    "$conformance" "$dir" >"$work/out" 2>&1 || rc=$?
    last=$(tail -n 1 "$work/out")
    if [ "$rc" -eq 1 ] && echo "$last" | grep -Eqx "[0-9]+ passed, $2 failed" &&
        grep -Fq -- "$3" "$work/out"; then
        echo "ok: $1"
    else
        echo "NOT OK: $1: exit $rc, last line '$last', expected '$2 failed' and the text '$3'"
        grep FAIL "$work/out" | head -n 5 || true
        status=1
    fi
}

# flip FILE OFFSET: inverts the lowest bit of one byte.
flip() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

fresh cast.tsv
flip "$dir/cast_f32_normal.e4m3fn" 1002
expect "one damaged byte of a cast" '[1-9][0-9]*' "cast.tsv:2: ref: byte 1002 is"

fresh pattern.tsv
flip "$dir/pattern_bf16_2.e5m2" 16000
expect "one damaged byte of a pattern file" '[1-9][0-9]*' "byte 16000 is"

fresh fsdp_w4.tsv
flip "$dir/fsdp_w4_dyn_1.e4m3fn" 100
expect "one damaged byte of a gathered weight" '[1-9][0-9]*' "fsdp_w4.tsv:7: ref: byte 100 of"

fresh fsdp_w2.tsv
flip "$dir/fsdp_w2_pre_0.in" 7
expect "one damaged weight" '[1-9][0-9]*' "fsdp_w2.tsv:2: "

fresh cast.tsv
sed -i 's/43038a3d/43038a3e/' "$dir/cast.tsv"
expect "a wrong scale" '[1-9][0-9]*' "scale 43038a3d, want 43038a3e"

fresh fsdp_w2.tsv
flip "$dir/fsdp_w2_dyn_2.e4m3fn" 255
expect "a wrong gather by the daemon" '[1-9][0-9]*' \
    "daemon, 2 ranks, 2 slots, rank 0, 'fsdp_w2.tsv:8 dynamic [32, 8]': byte 255 is"

fresh delayed.tsv
flip "$dir/delayed_bf16_3.e4m3fn" 700
expect "one damaged byte of a delayed step" '[1-9][0-9]*' "delayed.tsv:11: ref: byte 700 is"
expect "the same by the daemon" '[1-9][0-9]*' \
    "delayed.tsv:11: daemon, 3 ranks, 2 slots, rank 0, 'step 3': byte 700 is"

# damage NAME SED TEXT TEXT: what the kernels say and what the daemon's run says.
damage() {
    fresh delayed.tsv
    sed -i "$2" "$dir/delayed.tsv"
    expect "$1" '[1-9][0-9]*' "delayed.tsv:4: ref: $3"
    expect "$1 by the daemon" '[1-9][0-9]*' "delayed.tsv:4: daemon, 2 ranks, 0 slots, rank 0, 'step 2': $4"
}

damage "a wrong scale of a delayed step" '4s/4181bb7e/4181bb7f/' \
    "scale 4181bb7e, want 4181bb7f" "scale 4181bb7e, want 4181bb7f"
damage "a wrong amax of a delayed step" '4s/42fb51fe/42fb51ff/' \
    "amax 42fb51fe, want 42fb51ff" "amax 42fb51fe, want 42fb51ff"
damage "a wrong scale after a sync" '4s/40642bc7/40642bc8/' \
    "scale 40642bc7 after the sync, want 40642bc8" "scale 40642bc7 after the sync, want 40642bc8"
damage "a wrong history" '4s/40fdc16a,41dd0241/40fdc16a,41dd0242/' \
    "entry 2 of the history is 41dd0241, want 41dd0242" \
    "entry 2 of the history is 41dd0241, want 41dd0242"

fresh delayed.tsv
sed -i '3d' "$dir/delayed.tsv"
expect "a delayed step that is missing" '[1-9][0-9]*' "delayed.tsv:3: step 2 of f32 does not follow"

fresh delayed.tsv
sed -i '4s/,00000000$//' "$dir/delayed.tsv"
expect "a history that shrinks" '[1-9][0-9]*' "delayed.tsv:4: step 2 is of another weight"

fresh delayed.tsv
sed -i '4s/,00000000$/,0/' "$dir/delayed.tsv"
expect "a history that is not bits" '[1-9][0-9]*' "delayed.tsv:4: '0' is not 8 hexadecimal digits"

fresh fsdp_w4.tsv
sed -i '/precompute/s/45fdcf91/45fdcf92/' "$dir/fsdp_w4.tsv"
expect "a wrong scale by the daemon" '[1-9][0-9]*' "'fsdp_w4.tsv:2 precompute [16, 16]': scale"

fresh pattern.tsv
sed -i 's/43233859/7f800000/' "$dir/pattern.tsv"
expect "what the daemon refuses" '[1-9][0-9]*' "rank 0: f8_register: "

fresh fsdp_w2.tsv
printf '65\tdynamic\t4\t4\tf32\t3f800000\tw.in\tw.e5m2\n' >>"$dir/fsdp_w2.tsv"
head -c 64 /dev/zero >"$dir/w.in"
head -c 16 /dev/zero >"$dir/w.e5m2"
expect "more ranks than can be started" '[1-9][0-9]*' "fsdp_w2.tsv:10: 65 ranks are too many"

fresh cast.tsv
rm "$dir/cast_bf16_tiny.in"
expect "a missing file" '[1-9][0-9]*' "cannot open 'cast_bf16_tiny.in': No such file"

fresh fsdp_w2.tsv
printf x >>"$dir/fsdp_w2_pre_3.e4m3fn"
expect "a file that is too long" 1 "'fsdp_w2_pre_3.e4m3fn' has 3073 bytes"

fresh pattern.tsv
printf 'bf16\te4m3fn\n' >>"$dir/pattern.tsv"
expect "a row that is too short" 1 "pattern.tsv:18: the row has 2 columns"

fresh fsdp_w2.tsv
printf '0\tdynamic\t99999999999999999999\t-1\tf32\t0\tx\ty\n' >>"$dir/fsdp_w2.tsv"
expect "numbers out of range" 1 "fsdp_w2.tsv:10: '99999999999999999999' is not a number"

fresh fsdp_w2.tsv
printf '0\tdynamic\t4\t4\tf32\t00000000\tfsdp_w2_dyn_0.in\tx.e5m2\n' >>"$dir/fsdp_w2.tsv"
expect "a world without ranks" 1 "fsdp_w2.tsv:10: a world of 0 ranks"

fresh pattern.tsv
printf 'f64\te4m3fn\t3f800000\tx\nbf16\te3m4\t3f800000\tx\n' >>"$dir/pattern.tsv"
printf 'bf16\te5m2\t3f8\tx\n' >>"$dir/pattern.tsv"
expect "unknown words" 3 "'f64' is no source type"

fresh pattern.tsv
printf 'bf16\te5m2\t3f800000\t../vectors/pattern_bf16_0.e5m2\n' >>"$dir/pattern.tsv"
expect "a path out of the directory" 1 "is not the name of a file"

fresh fsdp_w2.tsv
printf '# empty\n' >"$dir/unknown.tsv"
expect "an index of an unknown name" 1 "unknown.tsv: no cases are known"

fresh pattern.tsv
printf '# empty\n' >"$dir/pattern.tsv"
expect "an index without rows" 1 "pattern.tsv: the index has no rows"

fresh pattern.tsv
printf 'a\0b\n' >"$dir/pattern.tsv"
expect "a binary index" 1 "pattern.tsv: the index contains a NUL byte"

# Five rows of 1.0 over four ranks: 2, 2, 1 and none; scale 448, code 0x7e, three bytes of padding.
rm -rf "$dir"
mkdir "$dir"
printf '4\tdynamic\t5\t1\tf32\t43e00000\tw.in\tplain.e4m3fn\n' >"$dir/fsdp_uneven.tsv"
printf '4\tprecompute\t5\t1\tf32\t43e00000\tw.in\tpadded.e4m3fn\n' >>"$dir/fsdp_uneven.tsv"
for _ in 1 2 3 4 5; do printf '\000\000\200\077'; done >"$dir/w.in"
printf '\176\176\176\176\176' >"$dir/plain.e4m3fn"
printf '\176\176\176\176\176\000\000\000' >"$dir/padded.e4m3fn"
if "$conformance" "$dir" >"$work/out" 2>&1; then
    echo "ok: uneven shards"
else
    echo "NOT OK: uneven shards:"
    cat "$work/out"
    status=1
fi
flip "$dir/padded.e4m3fn" 7
expect "padding that is not zero" '[1-9][0-9]*' "fsdp_uneven.tsv:2: ref: byte 7 of"

# The program looks for its daemon beside itself: a copy of it elsewhere can be given any.
fresh fsdp_w2.tsv fsdp_w4.tsv
mkdir "$work/alone"
cp "$conformance" "$work/alone/conformance"
original=$conformance
conformance=$work/alone/conformance
expect "no daemon" 2 "fsdp_w2.tsv: no daemon to start: $work/alone/f8gatherd: No such file"
printf '#!/bin/sh\necho broken >&2\nexit 3\n' >"$work/alone/f8gatherd"
chmod +x "$work/alone/f8gatherd"
expect "a daemon that ends at once" 2 "ended with status 3; the end of its log:"
conformance=$original

rm -rf "$dir"
mkdir "$dir"
expect "an empty directory" 0 "nothing was run"

rm -rf "$dir"
expect "no directory" 1 "cannot read the directory"

exit $status
