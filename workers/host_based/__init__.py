"""All-reduce between hosts: schedules, and the transports that carry them."""
