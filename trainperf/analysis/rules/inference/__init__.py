"""Rules about inference loops: what spoils their answers, and what they compute for nothing."""
