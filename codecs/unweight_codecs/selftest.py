"""A quick proof that the pipelines work on this machine."""

import numpy as np

from unweight_codecs.errors import UnweightError
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_codec import decode_tensor, encode_tensor
from unweight_codecs.tensor_spec import TensorSpec

_SHAPE = (96, 1024)


def selftest() -> str:
    """Code and decode a random BF16 tensor with every preset; return "" or what went wrong."""
    values = np.random.default_rng(0).normal(0, 0.02, _SHAPE).astype("<f4")
    data = np.ascontiguousarray(values.view("<u2")[:, 1::2]).view(np.uint8).reshape(-1)
    for name, pipeline in PRESETS.items():
        try:
            coded = encode_tensor(pipeline, TensorSpec("selftest", "BF16", _SHAPE), data)
            if coded is None:
                return f"preset {name}: did not shrink"
            if not np.array_equal(np.concatenate(decode_tensor(pipeline, coded)), data):
                return f"preset {name}: other bytes came back"
        except UnweightError as error:
            return f"preset {name}: {error}"
    return ""
