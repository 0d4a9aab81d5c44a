"""Converts a MessagePack value to JSON. The small decoder shares no code with the decoder of the project.

SPDX-License-Identifier: Apache-2.0
"""
import struct

FIXED = {0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xc7: ">B", 0xc8: ">H", 0xc9: ">I", 0xca: ">f", 0xcb: ">d",
         0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q",
         0xd9: ">B", 0xda: ">H", 0xdb: ">I", 0xdc: ">H", 0xdd: ">I", 0xde: ">H", 0xdf: ">I"}


class NotMessagePack(ValueError):
    pass


class Unpacker:
    def __init__(self, data):
        self.data = data
        self.position = 0

    def take(self, count):
        if count > len(self.data) - self.position:
            raise NotMessagePack("cut short")
        self.position += count
        return self.data[self.position - count:self.position]

    def array(self, count):
        return [self.value() for _ in range(count)]

    def map(self, count):
        pairs = [(self.value(), self.value()) for _ in range(count)]
        if len({repr(key) for key, _ in pairs}) != count:
            raise NotMessagePack("JSON cannot show a key twice")
        if any(not isinstance(key, str) for key, _ in pairs):
            raise NotMessagePack("JSON cannot show a key that is not text")
        return dict(pairs)

    def text(self, count):
        return self.take(count).decode("utf-8")

    def binary(self, count):
        return {"bytes": self.take(count).hex()}

    def value(self):
        lead = self.take(1)[0]
        if lead < 0x80:
            return lead
        if lead < 0x90:
            return self.map(lead & 15)
        if lead < 0xa0:
            return self.array(lead & 15)
        if lead < 0xc0:
            return self.text(lead & 31)
        if lead >= 0xe0:
            return lead - 256
        if lead in (0xc0, 0xc2, 0xc3):
            return {0xc0: None, 0xc2: False, 0xc3: True}[lead]
        if lead not in FIXED:
            raise NotMessagePack(f"no JSON view of 0x{lead:02x}")
        number = struct.unpack(FIXED[lead], self.take(struct.calcsize(FIXED[lead])))[0]
        if lead in (0xc7, 0xc8, 0xc9):
            raise NotMessagePack("no JSON view of extensions")
        for leads, read in (((0xc4, 0xc5, 0xc6), self.binary), ((0xd9, 0xda, 0xdb), self.text),
                            ((0xdc, 0xdd), self.array), ((0xde, 0xdf), self.map)):
            if lead in leads:
                return read(number)
        return number


def json_view(payload):
    """Returns the value of `payload`.

    Raises ValueError if the input is not exactly one MessagePack value, or if JSON cannot show the value.
    Raises RecursionError if the value is nested too deep.
    """
    unpacker = Unpacker(payload)
    value = unpacker.value()
    if unpacker.position != len(payload):
        raise NotMessagePack("unread bytes after the value")
    return value
