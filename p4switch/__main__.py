"""`python -m p4switch`: the switch as a process, with simple_switch_grpc's command line."""

import sys

from p4switch import cli

PRELOADED = ("p4switch.serving",)


def main() -> int:
    """Run the switch that the command line asks for."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
