"""The tests on the device, where a session has other tests as well."""

import subprocess
import sys

import pytest
from support.device.build import missing_tools
from support.device.session import FOLDERS


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools()), reason=missing_tools())
def test_every_test_on_the_device_passes_in_its_own_process() -> None:
    """A device must be there before the first backward pass of a process."""
    folders = map(str, FOLDERS)
    asked = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", *folders]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout, ran.stdout
