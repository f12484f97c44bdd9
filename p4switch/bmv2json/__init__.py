"""Programs in BMv2's JSON, parsed and checked."""
