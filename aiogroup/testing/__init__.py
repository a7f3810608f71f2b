"""For tests of applications: `Proxy` stands in front of every broker of a cluster and makes requests fail as you
choose.

    async with Proxy("localhost:9092") as proxy:
        consumer = Consumer("orders", bootstrap_servers=proxy.bootstrap_servers, group_id="billing")
        async with consumer:
            with proxy.drop("Heartbeat"):  # the coordinator goes silent
                ...

Needs no pytest. See docs/testing.md.
"""

from aiogroup.testing.proxy import Proxy
from aiogroup.testing.rules import CUT, DROPPED, Api, Damage, Exchange, Raw, Rule

__all__ = ["CUT", "DROPPED", "Api", "Damage", "Exchange", "Proxy", "Raw", "Rule"]
