"""Model directories: which files belong to a model, sharded and split ones, links, limits."""
