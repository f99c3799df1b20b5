"""The five built-in stages. They never import each other: the model is what they share."""
