#!/usr/bin/env bash
# Everything that only a GPU can show, part by part, each into a file of its own in OUT.
#
#     bench/gpu.sh OUT [PART ...]
#
# tests     the tests marked gpu
# quality   twins, planted slow-downs, repeated timings
# speed     seconds a verdict, verdicts a minute
# repeats   whole verdicts again and again
# selftest  good kernels, slips and cheats
# kills     verdicts while the referee's processes are killed
# decode    tokens a second, against the peers
# mint      every operation with the embedded smith
# training  a small transformer with five saved kernels
# own       functions of one's own, timed at two sizes
# book      a book of 30 operations, then judged again
# peers     kernels of Liger, Helion and PyTorch, side by side
#
# Without PART all, in this order. PYTHON names the interpreter, in whose environment kmint is installed with `[test]`; CORES how
# many processors build baselines and judge. A part that fails does not stop the next; the exit code is then 1.
# `python -m bench.keep OUT/mint_catalogue.json` keeps a result and makes the tables of README and docs anew.
set -uo pipefail
: "${1:?where to put the results}"
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit
shift
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
cores=${CORES:-$(nproc)}
failed=0

part() {
    case $1 in
        tests) "$python" -m pytest -q -m gpu -p no:cacheprovider ;;
        quality) "$python" bench/timing_quality.py --json "$out/timing_quality.json" ;;
        speed) "$python" bench/judge_catalogue.py --level full --builders "$((cores > 4 ? cores - 2 : cores))" --threads 6 --json "$out/judge_catalogue.json" ;;
        repeats) "$python" bench/repeated_verdicts.py --json "$out/repeated_verdicts.json" ;;
        selftest) "$python" -m kmint_tui selftest --json >"$out/selftest.json" ;;
        kills) "$python" bench/kill_judge.py --gpu --json "$out/kill_judge.json" ;;
        decode) "$python" bench/decode.py --json "$out/decode.json" ;;
        mint) "$python" bench/mint_catalogue.py --json "$out/mint_catalogue.json" ;;
        training) "$python" bench/saved_training.py --json "$out/saved_training.json" ;;
        own) "$python" bench/own_speed.py --drafts "$out/own_drafts.json" --json "$out/own_speed.json" --builders "$((cores > 4 ? cores - 2 : cores))" ;;
        book) "$python" bench/book_build.py --rejudge --json "$out/book_build.json" ;;
        peers) "$python" bench/peers.py --seconds 540 --json "$out/peers.json" ;;
        *) echo "no part is called $1" >&2; return 2 ;;
    esac
}

[ $# -gt 0 ] || set -- tests quality speed repeats selftest kills decode mint training own book peers
for name in "$@"; do
    began=$SECONDS
    if part "$name" 2>&1 | tee "$out/$name.log"; then ended=done; else ended="FAILED ($?)" failed=1; fi
    echo "== $name: $ended after $((SECONDS - began)) s"
done
exit "$failed"
