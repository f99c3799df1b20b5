"""Reports as things a terminal can show: pure functions from a report to rich renderables."""
