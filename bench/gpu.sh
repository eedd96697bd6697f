#!/usr/bin/env bash
# Everything that only a GPU can show, part by part, each into a file of its own in OUT.
#
#     bench/gpu.sh OUT [PART ...]
#
# tests     the tests marked gpu
# limits    what llama.cpp gives, with one and with several contexts   (the smith's parts need llama-cpp-python built for CUDA)
# quality   twins, planted slow-downs, repeated timings
# sizes     twins of several sizes
# flushes   repeated timings with another flush of the cache
# places    repeated timings with code and memory elsewhere
# cadence   whether a call's time depends on how many there were before
# host      what queueing a round costs the host
# speed     seconds a verdict, verdicts a minute
# repeats   whole verdicts again and again
# selftest  good kernels, slips and cheats
# kills     verdicts while the referee's processes are killed
# decode    tokens a second, against the peers
# mint      every operation with the embedded smith
#
# Without PART all, in this order. PYTHON names the interpreter, in whose environment kmint is installed with `[test]`; CORES how
# many processors build baselines and judge. A part that fails does not stop the next; the exit code is then 1.
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
        limits) "$python" bench/decode_limits.py --json "$out/decode_limits.json" ;;
        quality) "$python" bench/timing_quality.py --json "$out/timing_quality.json" ;;
        sizes) "$python" bench/twin_sizes.py --json "$out/twin_sizes.json" ;;
        flushes) "$python" bench/flushes.py --json "$out/flushes.json" ;;
        places) "$python" bench/placements.py --json "$out/placements.json" ;;
        cadence) "$python" bench/cadence.py --json "$out/cadence.json" ;;
        host) "$python" bench/host_of_rounds.py --json "$out/host_of_rounds.json" ;;
        speed) "$python" bench/judge_catalogue.py --level full --builders "$((cores > 4 ? cores - 2 : cores))" --threads 6 --json "$out/judge_catalogue.json" ;;
        repeats) "$python" bench/repeated_verdicts.py --json "$out/repeated_verdicts.json" ;;
        selftest) "$python" -m kmint_tui selftest --json >"$out/selftest.json" ;;
        kills) "$python" bench/kill_judge.py --gpu --json "$out/kill_judge.json" ;;
        decode) "$python" bench/decode.py --json "$out/decode.json" ;;
        mint) "$python" bench/mint_catalogue.py --json "$out/mint_catalogue.json" ;;
        *) echo "no part is called $1" >&2; return 2 ;;
    esac
}

[ $# -gt 0 ] || set -- tests limits quality sizes flushes places cadence host speed repeats selftest kills decode mint
for name in "$@"; do
    began=$SECONDS
    if part "$name" 2>&1 | tee "$out/$name.log"; then ended=done; else ended="FAILED ($?)" failed=1; fi
    echo "== $name: $ended after $((SECONDS - began)) s"
done
exit "$failed"
