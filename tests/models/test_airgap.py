"""An air-gapped machine: from the import of a bundle to a minted kernel without any network.

KMINT_HOME is fresh, and the packages are those of this environment. `bench/airgap.sh` installs them
from a wheelhouse in the same namespace, which takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

from tests.cli.runner import kmint
from tests.models.places import NO_NETWORK, need

ALONE = "import socket; print([name for _, name in socket.if_nameindex() if name != 'lo'])"


def alone(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the only interface is a loopback that is down."""
    environment = {
        "HOME": str(home),
        "KMINT_HOME": str(home),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    environment |= {
        name: os.environ[name]
        for name in ("PATH", "TMPDIR", "OMP_NUM_THREADS")
        if name in os.environ
    }
    return subprocess.run([*NO_NETWORK, *command], capture_output=True, text=True, env=environment)


def test_from_a_bundle_to_a_kernel(tmp_path: Path) -> None:
    need(NO_NETWORK)
    home, bundle = tmp_path / "home", tmp_path / "smith.kmint.tar"
    (embedded,) = (Path(str(resources.files("kmint_tui"))) / "smith" / "embedded").glob("*.gguf")
    assert kmint("models", "import", str(embedded), "--as", "tiny").code == 0
    assert kmint("models", "bundle", "tiny", "--out", str(bundle)).code == 0

    assert alone(tmp_path, sys.executable, "-c", ALONE).stdout.strip() == "[]"
    command = [sys.executable, "-m", "kmint_tui"]
    imported = alone(home, *command, "models", "import", str(bundle), "--as", "tiny", "--json")
    assert imported.returncode == 0, imported.stderr
    answer = json.loads(imported.stdout)
    assert (answer["id"], answer["linked"]) == ("tiny", False)
    assert str(home) in answer["path"]
    verified = alone(home, *command, "models", "verify", "tiny")
    assert verified.returncode == 0 and "unchanged since it came in" in verified.stdout

    sampling = ["--dialect", "card", "--seed", "3", "--drafts", "3", "--until", "first"]
    minted = alone(home, *command, "mint", "softmax", "--model", "tiny", *sampling, "--json")
    assert minted.returncode == 0, minted.stdout[-2000:] + minted.stderr
    document = json.loads(minted.stdout)
    assert document["model"] == "tiny"
    listed = alone(home, *command, "history", "--json")
    assert listed.returncode == 0 and "softmax" in listed.stdout
