"""A stand-in for vLLM 0.33, and for 0.32 if a test changes __version__: the parts that the plug-in of kvcast uses."""
__version__ = "0.33.0"
