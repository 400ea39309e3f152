#!/usr/bin/env bash
# Go on with `make reproduce` for $3 hours: reproduce_part.sh PYTHON PROFILE HOURS, run until build/reproduced/finished.
# Exit code 0 where the time was up or all is done; 1 where the book failed. At the end build/reproduced holds the
# profile's figures and what its numbers change in the page of claims.
set -euo pipefail
python="$1" profile="$2" hours="$3"
out=build/reproduced

if [ -f "$out/finished" ]; then
    echo "finished already: $out"
    exit 0
fi
mkdir -p "$out"
code=0
timeout --signal=INT --kill-after=120 "${hours}h" "$python" -m flashtrace_lib book --profile "$profile" --fresh || code=$?
if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then  # 137: it took longer than the two minutes to stop
    echo "$hours hours are over: run the same command again, it goes on from build/reproduce/$profile"
    exit 0
fi
[ "$code" -eq 0 ] || exit 1
"$python" -m flashtrace_lib claims
git diff -- README.md figures/claims.md >"$out/claims.diff"
rm -rf "${out:?}/figures" && cp -r "figures/$profile" "$out/figures"
cp figures/claims.md "data/results/$profile/manifest.json" "$out/"
touch "$out/finished"
echo "finished: $out"
