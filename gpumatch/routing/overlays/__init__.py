"""Overlays of brokers: topologies, destination lists, and the protocols D-DBR, MERC and FBR message by message."""
