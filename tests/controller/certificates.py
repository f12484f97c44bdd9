"""Certificates for the job service on TCP."""

import re
import subprocess
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "job-client.md"


def certificates(folder: Path) -> Path:
    """Make those of an authority, a server and a client in this new folder, with the commands of DOCUMENT."""
    commands = re.search(
        r"(?:^    .*\n)+", DOCUMENT.read_text().partition("These commands of openssl make")[2], re.M
    )
    assert commands is not None
    folder.mkdir()
    subprocess.run(["bash", "-euc", commands[0]], cwd=folder, check=True, capture_output=True)
    return folder
