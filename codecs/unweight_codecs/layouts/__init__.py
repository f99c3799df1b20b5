"""How the words of a dtype split into integer planes."""

from unweight_codecs.layouts.words import WordLayout, layout_of, streams_of, words_of

__all__ = ["WordLayout", "layout_of", "streams_of", "words_of"]
