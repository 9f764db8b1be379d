"""`python -m tokenweight.training.loopback OPTIONS...`: torchrun on one node, which nothing outside the node can reach.

Whatever address torchrun is given, its store listens on all of the machine's: anyone on the network could join a run.
So the socket is bound here, to 127.0.0.1 and a free port, and the store is given it.
"""

import socket
import sys
from functools import partial
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        # Only this process opens the store as its master; the ranks are clients of it (torchrun tells them so).
        rendezvous: Any = static_tcp_rendezvous
        rendezvous.TCPStore = partial(rendezvous.TCPStore, master_listen_fd=listening.detach())
        run.main(["--master_addr", host, "--master_port", str(port), *sys.argv[1:]])
