"""A consumer and a producer that speak the JSON lines of Kafka's own system tests, in place of the Java tools."""
