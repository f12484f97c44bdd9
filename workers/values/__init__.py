"""What of a vector travels: quantized, scaled, as exact integers, or compressed."""
