"""The offline tower: what a recorded run says.  Imports neither torch nor the live tower."""
