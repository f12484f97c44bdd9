"""What a run must give: its sums, and its time in closed form."""
