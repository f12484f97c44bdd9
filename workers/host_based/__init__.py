"""All-reduce between hosts: schedules, and what carries them."""
