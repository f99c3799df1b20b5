"""One model made smaller in many ways, all of them measured."""
