"""Programs: BMv2's JSON, read and checked."""
