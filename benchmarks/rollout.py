"""`mbpo bench rollout`, from a checkout."""

import sys

from mbpo.cli import main

main(["bench", "rollout", *sys.argv[1:]])
