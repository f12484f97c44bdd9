"""Send one packet into port 1, and print what comes out of port 2 within two seconds."""

from scapy.all import AsyncSniffer, Ether, sendp


def send() -> None:
    """Send it."""
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x1234) / b"hello"
    sendp(packet, "veth1", verbose=False)


sniffer = AsyncSniffer(iface="veth3", count=1, started_callback=send)
sniffer.start()
sniffer.join(timeout=2)
for received in sniffer.results or ():
    print(received.summary())
