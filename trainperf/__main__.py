"""`python -m trainperf`."""

import sys

from trainperf.commands import main


if __name__ == "__main__":
    sys.exit(main())
