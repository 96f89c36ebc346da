"""One algorithm a file: its messages, its questions, its server maths, its estimator class."""
