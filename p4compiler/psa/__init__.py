"""PSA, the Portable Switch Architecture, carried out on v1model."""
