"""What the telemetry of a fleet says about its time-outs: reads the event logs that `aiogroup.eventlog` writes."""
