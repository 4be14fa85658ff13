"""Decoders, each in a module of its own; `base` is what the reader expects of them."""
