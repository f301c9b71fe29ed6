"""`mbpo bench train`, from a checkout."""

import sys

from mbpo.cli import main

main(["bench", "train", *sys.argv[1:]])
