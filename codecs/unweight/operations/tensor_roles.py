"""Which part of a model a tensor belongs to, told from its name.

The names are those of LLaMA, Mistral and Mixtral, Qwen, BERT, GPT-2, GPT-NeoX, OPT, Falcon, T5,
CLIP, Whisper and the diffusers models; a name that fits nothing is "other".
"""

import re
from typing import Final

OTHER: Final = "other"

# The first pattern found in the lower-cased name decides. Norms come first because their names
# repeat the part they stand beside (post_attention_layernorm); attention comes before feed-forward
# because both may end in the same layer name (attention.output.dense, attn.c_proj).
_PATTERNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("norm", r"norm|(^|[._])(ln|bn)\d*([._]|$)"),
        (
            "attention",
            r"att(n|ention)|(^|\.)att\.|(^|[._])qkv([._]|$)|query_key_value"
            r"|(^|\.)to_(q|k|v|out)([._]|$)|(^|\.)[qkvo]_proj\.",
        ),
        (
            "feed-forward",
            r"(^|[._])(mlp|ffn?|feed_?forward|experts?|moe|router)([._\d]|$)"
            r"|(gate|up|down)_proj|dense_(h_to_4h|4h_to_h)|(^|\.)(fc[12]|c_fc|w[123])\."
            r"|(intermediate|layer\.\d+\.output)\.dense|densereludense",
        ),
        (
            "embedding",
            r"embed|embd|embs?([._]|$)|(^|\.)(wte|wpe|lm_head|shared)\.|^output\.weight$",
        ),
        ("convolution", r"(^|[._])conv(_?\d+d?|olution|_in|_out|_shortcut)?([._]|$)"),
    )
)

# In the order of a table: as a model is read, from its input on.
KINDS: Final = ("embedding", "attention", "feed-forward", "convolution", "norm", OTHER)


def kind_of(name: str) -> str:
    """Return the kind of the tensor called ``name``: one of ``KINDS``."""
    lowered = name.lower()
    return next((kind for kind, pattern in _PATTERNS if pattern.search(lowered)), OTHER)
