"""Other projects' Go programs, built from a checkout that stays as it is.

What of ours stands beside their sources, in their packages, is there by `-overlay` of the `go` command alone. Nothing is
fetched: their `vendor/` has what they need.
"""

import json
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A first build compiles all of Kubernetes' client and NVIDIA's library of some 600 functions.
BUILD_LIMIT = 1800


class BuildError(Exception):
    """What the `go` command has said."""


def build(go, checkout, package, output, ours=None, test=False):
    """Builds a package of a checkout into a file. `ours` has places in the checkout for files of this folder."""
    checkout, overlay = checkout.resolve(), output.with_suffix(".overlay")
    places = {str(checkout / place): str(HERE / name) for place, name in (ours or {}).items()}
    overlay.write_text(json.dumps({"Replace": places}))
    environment = {
        **os.environ,
        "CGO_ENABLED": "1",
        # As the DRA driver's Makefile has it.
        "CGO_LDFLAGS_ALLOW": "-Wl,--unresolved-symbols=ignore-in-object-files",
        "GOFLAGS": "-mod=vendor",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    command = [go, *(("test", "-c") if test else ("build",)), "-overlay", str(overlay), "-o", str(output)]
    # Without the paths of a checkout what was compiled before serves one elsewhere.
    command += ["-buildvcs=false", "-trimpath", package]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=BUILD_LIMIT
    )
    if done.returncode != 0:
        raise BuildError(f"{package} of {checkout} is not built:\n{done.stderr}")
    return output


def version(checkout):
    """What is known of a checkout's version: its commit, or the name of its folder, which archives of GitHub have it in."""
    checkout = checkout.resolve()
    if not (checkout / ".git").exists():
        return checkout.name
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or checkout.name
