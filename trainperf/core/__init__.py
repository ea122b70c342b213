"""The base that both towers share.  No torch, no framework."""
