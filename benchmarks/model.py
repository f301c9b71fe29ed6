"""`mbpo bench model`, from a checkout."""

import sys

from mbpo.cli import main

main(["bench", "model", *sys.argv[1:]])
