"""Figures as tables and files, beside what the project means to reach."""
