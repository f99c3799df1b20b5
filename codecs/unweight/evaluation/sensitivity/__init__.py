"""How much each tensor matters to a model, and error bounds shared out by it."""
