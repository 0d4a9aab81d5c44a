"""The fuzz targets: {name: (folder of its seeds in the corpus, dictionary, bytes of the longest input)}.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib

# One step of the source takes a few bytes. Longer inputs cost much time and add little coverage.
SOURCE_BYTES = 192
TEXT_BYTES = 1024

TARGETS = {
    "decode": ("wire", "wire.dict", 4096),
    "differential": ("wire", "wire.dict", 4096),
    "extension": ("wire", "wire.dict", 4096),
    "snapshot": ("wire", "wire.dict", 4096),
    "source": ("wire", "wire.dict", SOURCE_BYTES),
    "query": ("query", "json.dict", TEXT_BYTES),
    "http": ("http", "http.dict", TEXT_BYTES),
    "registration": ("registration", "json.dict", TEXT_BYTES),
    "mooncake": ("mooncake", "json.dict", 2 * TEXT_BYTES),
    "trtllm": ("trtllm", "json.dict", 2 * TEXT_BYTES),
    "capture": ("capture", "wire.dict", 4096),
    "keys": ("keys", "keys.dict", TEXT_BYTES),
    "gauge": ("gauge", "wire.dict", TEXT_BYTES),
}


def command(program, target, corpus, new_inputs, *flags):
    """Returns the command that runs a target. The target reads the corpus, and writes new inputs to `new_inputs`."""
    seeds, dictionary, longest = TARGETS[target]
    folder = pathlib.Path(__file__).resolve().parent
    return [str(program), f"-dict={folder / dictionary}", f"-max_len={longest}", *flags, str(new_inputs),
            str(corpus / seeds)]
