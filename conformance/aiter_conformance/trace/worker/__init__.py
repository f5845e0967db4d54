"""The process in which one release is imported on one board that is not there."""
