"""The demo model with experts as wide as one likes: a checkpoint of gigabytes that takes no room on the disk.

All weights are zero, which is enough to load them.
"""

import json
import os
import re
import shutil
import struct

from pod import MODEL

ROUTED_UP = re.compile(r"\.experts\.\d+\.w[13]\.(weight|weight_scale)$")
ROUTED_DOWN = re.compile(r"\.experts\.\d+\.w2\.(weight|weight_scale)$")
SHARED_UP = re.compile(r"\.shared_experts\.(gate|up)_proj\.weight$")
SHARED_DOWN = re.compile(r"\.shared_experts\.down_proj\.weight$")


def read_header(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size))


def widened(name, shape, factor):
    if ROUTED_UP.search(name) or SHARED_UP.search(name):
        return [shape[0] * factor, *shape[1:]]
    if ROUTED_DOWN.search(name) or SHARED_DOWN.search(name):
        return [*shape[:-1], shape[-1] * factor]
    return shape


def size_of(shape, dtype):
    count = {"F32": 4, "BF16": 2, "U8": 1, "F8_E4M3": 1}[dtype]
    for extent in shape:
        count *= extent
    return count


def write_sparse(source, target, factor):
    old = read_header(source)
    header, end, ones = {}, 0, []
    for name, tensor in sorted(((n, t) for n, t in old.items() if n != "__metadata__"),
                               key=lambda item: item[1]["data_offsets"]):
        shape = widened(name, tensor["shape"], factor)
        size = size_of(shape, tensor["dtype"])
        header[name] = {"dtype": tensor["dtype"], "shape": shape, "data_offsets": [end, end + size]}
        if name.endswith("weight_scale_2"):
            ones.append(end)
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        os.ftruncate(file.fileno(), 8 + len(text) + end)
        for offset in ones:  # a global scale that MXFP4 can do without
            file.seek(8 + len(text) + offset)
            file.write(struct.pack("<f", 1.0))
    return end


def make(folder, factor):
    """Writes the model into `folder`, its experts `factor` times as wide; returns the bytes of its tensors."""
    folder.mkdir()
    total = 0
    for path in MODEL.iterdir():
        if path.suffix == ".safetensors":
            total += write_sparse(path, folder / path.name, factor)
        else:
            shutil.copy(path, folder / path.name)
    config = json.loads((MODEL / "config.json").read_text())
    config["text_config"]["moe_intermediate_size"] *= factor
    (folder / "config.json").write_text(json.dumps(config))
    return total
