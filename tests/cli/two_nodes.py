"""A Ray cluster of a head and two nodes, on this machine: ``python two_nodes.py FOLDER``.

It prints the address and the process ids of the nodes' raylets. A line on standard input starts
another node; the end of standard input stops the cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def raylet(node: Any) -> int:
    """The process id of the raylet of a node."""
    (info,) = node.all_processes["raylet"]
    return int(info.process.pid)


def main() -> None:
    # Not installed where these tests are skipped.
    from ray._private.utils import get_ray_address_file
    from ray.cluster_utils import Cluster

    # Ray writes the address of a cluster there, and makes the folder only if it is its own too.
    Path(get_ray_address_file(None)).parent.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "temp_dir": sys.argv[1], "include_dashboard": False},
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print("nodes", cluster.address, *map(raylet, nodes), flush=True)
    for _ in sys.stdin:
        print("nodes", raylet(cluster.add_node(num_cpus=1)), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
