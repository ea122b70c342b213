"""Devices that compute beside the host: what the rest asks of one, whichever it is.

One class says it by torch's general interface (`torch.accelerator`, `torch.Event`), so a device
that nobody here has heard of (`PrivateUse1`) is measured by it; a backend that has more, less or
other names has a file of its own.  Nothing else in the package names a backend's module.
"""

from trainperf.accelerators.base import Ability as Ability
from trainperf.accelerators.base import Accelerator as Accelerator
from trainperf.accelerators.base import Host as Host
from trainperf.accelerators.choice import accelerator_in_use as accelerator_in_use
from trainperf.accelerators.choice import accelerator_of as accelerator_of
from trainperf.accelerators.choice import busy_accelerators as busy_accelerators
from trainperf.accelerators.choice import default_accelerator as default_accelerator
from trainperf.accelerators.choice import keep_random_state as keep_random_state
from trainperf.accelerators.choice import random_states as random_states
