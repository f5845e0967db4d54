"""Level hardware at work: a parent schedules, workers run real kernels on a GPU, a journal remembers."""
