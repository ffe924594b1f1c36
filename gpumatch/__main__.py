"""``python -m gpumatch`` is the command ``gpumatch``."""

import sys

from gpumatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
