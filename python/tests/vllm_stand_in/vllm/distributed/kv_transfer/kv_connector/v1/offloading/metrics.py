"""Part of the stand-in for vLLM: the statistics of offloading."""


class OffloadingConnectorStats:
    """data: by kind of metric, then by name."""

    def __init__(self):
        self.data = {"gauge": {}, "counter": {}, "histogram": {}}

    def set_gauge(self, name, value):
        self.data["gauge"][name] = value

    def increase_counter(self, name, value=1):
        self.data["counter"][name] = self.data["counter"].get(name, 0) + value

    def observe_histogram(self, name, value):
        self.data["histogram"].setdefault(name, []).append(value)
