"""`python -m mbpo` is the program `mbpo`."""

from mbpo.cli import main

main()
