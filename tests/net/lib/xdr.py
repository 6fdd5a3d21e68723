"""XDR (RFC 4506), written apart from the server's own codec: the tests must not share its mistakes."""

import struct


class Out:
    def __init__(self):
        self.data = bytearray()

    def u32(self, value):
        self.data += struct.pack(">I", value & 0xFFFFFFFF)
        return self

    def i32(self, value):
        self.data += struct.pack(">i", value)
        return self

    def u64(self, value):
        self.data += struct.pack(">Q", value)
        return self

    def bool(self, value):
        return self.u32(int(value))

    def fixed(self, data):
        self.data += data + bytes(-len(data) % 4)
        return self

    def opaque(self, data):
        if isinstance(data, str):
            data = data.encode()
        return self.u32(len(data)).fixed(data)

    string = opaque

    def bytes(self):
        return bytes(self.data)


class Short(Exception):
    """The message ended before its time, or went on after it."""


class In:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def fixed(self, length):
        end = self.at + length
        padded = self.at + (length + 3) // 4 * 4
        if padded > len(self.data):
            raise Short(f"{padded - len(self.data)} bytes missing")
        piece = self.data[self.at : end]
        if any(self.data[end:padded]):
            raise Short("padding is not zero")
        self.at = padded
        return bytes(piece)

    def u32(self):
        return struct.unpack(">I", self.fixed(4))[0]

    def i32(self):
        return struct.unpack(">i", self.fixed(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.fixed(8))[0]

    def bool(self):
        value = self.u32()
        if value > 1:
            raise Short(f"bool is {value}")
        return bool(value)

    def opaque(self):
        return self.fixed(self.u32())

    def string(self):
        return self.opaque().decode()

    def end(self):
        if self.at != len(self.data):
            raise Short(f"{len(self.data) - self.at} bytes too many")
