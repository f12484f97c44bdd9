"""What fanin's times are compared with: closed forms, other simulators, papers, and its own two worlds."""
