"""Whether kmint was tested with the installed Triton; the canary tries an untested one."""

from __future__ import annotations

from kmint_tui import triton_fit
from kmint_tui.doctor.finding import Finding
from referee.versions import UnknownTriton, check_triton, tested_versions


def triton() -> Finding:
    """The installed version of Triton. An untested one takes some seconds, once an installation."""
    try:
        found = check_triton()
    except UnknownTriton as error:
        return Finding(
            "triton", "fail", str(error), f"install a tested version of Triton: {tested_versions()}"
        )
    report = triton_fit.untested("files")
    if report is None:
        return Finding("triton", "ok", f"{found} is a tested version")
    fix = f"every verdict will say so; the tested versions are {tested_versions()}"
    if report.passed:
        passed = ", ".join(probe.name for probe in report.probes)
        return Finding(
            "triton", "warn", f"{found} is not a tested version; the canary passed: {passed}", fix
        )
    fix = f"install a tested version of Triton: {tested_versions()}"
    return Finding(
        "triton",
        "fail",
        f"{found} is not a tested version, and the canary failed: {report.failures}",
        fix,
    )
