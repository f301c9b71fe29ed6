"""`python -m mbpo.theory`, the same as `mbpo theory`."""

import sys

from mbpo.errors import UsageError
from mbpo.theory.command import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
