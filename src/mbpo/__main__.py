"""`python -m mbpo` is the program `mbpo`."""

from mbpo.cli import main

if __name__ == "__main__":
    main()
