"""The commands of p4c and BMv2 with fanin behind them, so that courses written for these tools run unchanged."""
