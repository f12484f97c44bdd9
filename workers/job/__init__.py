"""A worker in its job: how it joins, what it does when others or its lease are gone, and what it says of itself."""
