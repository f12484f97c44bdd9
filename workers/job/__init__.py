"""A worker in its job: how it joins, how it handles the loss of other workers or its lease, and what it reports."""
