"""A stand-in for vLLM 0.33: the parts that the plug-in of kvcast uses."""
__version__ = "0.33.0"
