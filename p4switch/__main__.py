"""`python -m p4switch`: the switch as a process, with simple_switch_grpc's command line."""

import sys

from p4switch.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
