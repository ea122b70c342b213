"""Whole training scripts to read and to run, each measured by trainperf."""
