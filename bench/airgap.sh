#!/usr/bin/env bash
# The whole way to an air-gapped machine, rehearsed on one: on the connected side a wheelhouse and a bundle are made from this
# checkout; then, in a network namespace without an interface, kmint is installed from them alone into a fresh virtual
# environment and mints a kernel with the model of the bundle.
#
#     bench/airgap.sh [RESULT.json]
#
# Needs Python 3.11 or later, user namespaces, some 3 GB of disk, and the package index for the wheelhouse (pip's settings
# say which; a wheel of llama-cpp-python is built where there is none). PYTHON names another interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
alone() { unshare --user --map-root-user --net env -i PATH=/usr/bin:/bin HOME="$work/home" KMINT_HOME="$work/home" "$@"; }
mark() { echo "$(($(date +%s) - begun)) s: $1" >&2; }
begun=$(date +%s)
unshare --user --map-root-user --net true || { echo "this host gives no network namespaces" >&2; exit 3; }

# The connected side.
"$python" -m venv "$work/builder"
CMAKE_ARGS=${CMAKE_ARGS:--DCMAKE_PROJECT_INCLUDE=$root/kmint_tui/smith/llama.cmake} "$work/builder/bin/pip" wheel --quiet --wheel-dir "$work/wheels" "$root"
mark "wheelhouse of $(ls "$work/wheels" | wc -l) wheels, $(du -sm "$work/wheels" | cut -f1) MB"
"$work/builder/bin/pip" install --quiet --no-index --find-links "$work/wheels" kmint
connected() { KMINT_HOME="$work/connected" "$work/builder/bin/kmint" "$@"; }
model=$(cd "$work" && "$work/builder/bin/python" -c 'from importlib import resources; print(next((resources.files("kmint_tui") / "smith/embedded").glob("*.gguf")))')
connected models import "$model" --as minicpm5-1b >&2
connected models bundle minicpm5-1b --out "$work/smith.kmint.tar" >&2
tar -xOf "$work/smith.kmint.tar" requirements.txt >"$work/requirements.txt"
mark "bundle"

# The other side: nothing but the wheelhouse and the bundle.
mkdir "$work/home"
alone "$python" -c 'import socket, sys; sys.exit([n for _, n in socket.if_nameindex()] not in ([], ["lo"]))'
alone "$python" -m venv "$work/venv"
alone "$work/venv/bin/pip" install --quiet --no-index --find-links "$work/wheels" kmint
mark "installed without an index"
missing=$(alone "$work/venv/bin/pip" freeze | grep -vxiFf "$work/requirements.txt" | grep -v '^kmint' || true)
[ -z "$missing" ] || { echo "not in the bundle's list of packages: $missing" >&2; exit 1; }
alone "$work/venv/bin/kmint" models import "$work/smith.kmint.tar" >&2
cd "$work"
alone "$work/venv/bin/kmint" mint softmax --model minicpm5-1b --dialect card --seed 3 --drafts 4 --until first --json >"$work/minted.json"
mark "a kernel minted"
alone "$work/venv/bin/kmint" doctor --json >"$work/doctor.json" || true
"$python" - "$work" "${1:-}" "$(($(date +%s) - begun))" <<'PYTHON'
import json, platform, sys
from pathlib import Path

work, target, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
minted = json.loads((work / "minted.json").read_text())
found = {one["name"]: one["status"] for one in json.loads((work / "doctor.json").read_text())["findings"]}
wheels = sorted(path.name.split("-")[0] for path in (work / "wheels").glob("*.whl"))
result = {
    "schema": "kmint.bench.airgap/1",
    "python": platform.python_version(),
    "machine": platform.machine(),
    "wheels": len(wheels),
    "verdicts": [draft["verdict"]["verdict"] if isinstance(draft["verdict"], dict) else draft["verdict"] for draft in minted["drafts"]],
    "best": minted.get("best") is not None,
    "doctor": {status: sum(value == status for value in found.values()) for status in sorted(set(found.values()))},
    "seconds": seconds,
}
print(json.dumps(result, indent=1))
if target:
    Path(target).write_text(json.dumps(result, indent=1) + "\n")
PYTHON
