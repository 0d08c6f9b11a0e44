#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exported_symbols.sh LIBRARY HEADER: the library's dynamic symbols are exactly the F8_API functions
# of the header, each under the version that brought it: F8CLIENT_0, F8CLIENT_0.2...
set -eu
library=$1
header=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A declaration begins with F8_API; its name is the first f8_ word before a parenthesis.
tr '\n' ' ' <"$header" | grep -oE 'F8_API[^(]*\(' | grep -oE 'f8_[a-z_]+\($' | tr -d '(' |
    sort >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' |
    sed -E 's/@@F8CLIENT_0(\.[0-9]+)?$//' | sort >"$work/exported"
test "$(wc -l <"$work/declared")" -ge 25 || { echo "no declarations found in $header" >&2; exit 1; }
diff -u "$work/declared" "$work/exported" || {
    echo "left: declared in $header; right: exported by $library" >&2
    exit 1
}
