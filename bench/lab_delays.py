# SPDX-License-Identifier: MIT OR Apache-2.0
"""A DNS server with known delays. It answers each query DELAY_S after it came, and once sends nothing for STALL_S. It
prints its port. On SIGTERM it prints for each query hN its number, and the times of query and answer.

argument: when it stalls, in seconds from the first query on
"""

import heapq
import signal
import socket
import sys
import time

DELAY_S, STALL_S = 0.05, 1.0
STALLS_AT_S = float(sys.argv[1])
# A record of the name in the query: 192.0.2.1.
ADDRESS = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc0\0\2\1"

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
print(server.getsockname()[1], flush=True)
server.setblocking(False)
waiting, number, stall, told = [], 0, None, []


def tell(*_):
    print(*(f"{number} {came} {went}" for number, came, went in told), sep="\n", flush=True)
    sys.exit()


signal.signal(signal.SIGTERM, tell)
while True:
    now = time.monotonic()
    while True:
        try:
            query, client = server.recvfrom(512)
        except BlockingIOError:
            break
        # Read late: another process may have had the processor since.
        now = time.monotonic()
        stall = stall or now + STALLS_AT_S
        due = max(now, stall + STALL_S) if stall <= now < stall + STALL_S else now
        number += 1
        heapq.heappush(waiting, (due + DELAY_S, number, now, query, client))
    # Queries that come due during a stall are answered when it is over.
    stalls = stall is not None and stall <= now < stall + STALL_S
    while waiting and waiting[0][0] <= now and not stalls:
        _, _, came, query, client = heapq.heappop(waiting)
        server.sendto(query[:2] + b"\x81\x80" + query[4:6] + b"\0\1" + bytes(4) + query[12:] + ADDRESS, client)
        # The name's first part: its length, and hN.
        told.append((int(query[14 : 13 + query[12]]), came, time.monotonic()))
