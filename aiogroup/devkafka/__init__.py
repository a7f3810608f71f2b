"""Real Apache Kafka for development and tests: `with Cluster(nodes=3) as cluster: ...`."""

from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import spark_jars
from aiogroup.devkafka.node import Node
from aiogroup.devkafka.security import unsecured_jws

__all__ = ["Cluster", "DevKafkaError", "Node", "spark_jars", "unsecured_jws"]
