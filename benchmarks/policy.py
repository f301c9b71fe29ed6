"""`mbpo bench policy`, from a checkout."""

import sys

from mbpo.cli import main

main(["bench", "policy", *sys.argv[1:]])
