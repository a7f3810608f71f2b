"""Static membership as draft 41 of KIP-345 has it: `Broker(static_membership="draft")`."""
