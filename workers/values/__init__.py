"""The values that travel: quantized, scaled, as exact integers, or compressed."""
